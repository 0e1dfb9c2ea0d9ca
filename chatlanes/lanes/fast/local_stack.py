"""Celery's stacks of what runs on a thread or greenlet, laid open once for each push and pop.

Promises what `LocalStack.push` and `.pop` do, which look twice for what is not there, and raise and catch each time.
"""

from __future__ import annotations

from typing import Any

from celery.utils.threads import _LocalStack, get_ident


def push(stack: Any, item: Any) -> None:
    """As the stack does, which looks for what is not there first."""
    if type(stack) is not _LocalStack:
        stack.push(item)
        return
    locals_, ident = stack._local.__storage__, get_ident()
    here = locals_.get(ident)
    if here is None:
        locals_[ident] = {"stack": [item]}
    else:
        here["stack"].append(item)


def pop(stack: Any) -> None:
    """As the stack does."""
    if type(stack) is not _LocalStack:
        stack.pop()
        return
    locals_, ident = stack._local.__storage__, get_ident()
    items = locals_[ident]["stack"]
    items.pop()
    if not items:
        del locals_[ident]
