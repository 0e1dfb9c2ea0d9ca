"""Changes a module when it is imported, or immediately if it is already imported.

Each function changes a module once, before the importer can use it. A module that is never imported costs nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

Change = Callable[[ModuleType], None]

_wanted: dict[str, list[Change]] = {}


def on_import(name: str, change: Change) -> None:
    """Call `change` with the module of this name."""
    changes = _wanted.setdefault(name, [])
    if change in changes:
        return
    changes.append(change)
    if name in sys.modules:
        change(sys.modules[name])
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)


class _Finder(MetaPathFinder):
    """Finds modules with the other finders, and adds the changes to their loading."""

    def find_spec(self, name: str, path: Any, target: ModuleType | None = None) -> ModuleSpec | None:
        if name not in _wanted:
            return None
        others = (finder for finder in sys.meta_path if finder is not self)
        spec = next(filter(None, (finder.find_spec(name, path, target) for finder in others)), None)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def load_and_change(module: ModuleType) -> None:
                load(module)
                for change in _wanted[name]:
                    change(module)

            spec.loader.exec_module = load_and_change  # type: ignore[method-assign]
        return spec


_finder = _Finder()
