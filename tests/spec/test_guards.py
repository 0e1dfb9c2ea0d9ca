"""Each guard of the specification is needed: without it, TLC finds the promise that it keeps violated."""

from __future__ import annotations

import re
import shutil

import pytest

from spec.models import REMOVALS, Removal
from spec.tlc import SPEC


@pytest.mark.exhaustive
@pytest.mark.skipif(shutil.which("java") is None, reason="TLC needs Java")
@pytest.mark.parametrize("removal", REMOVALS, ids=lambda each: f"{' and '.join(each.guards)}: {each.violates}")
def test_without_a_guard_its_promise_is_violated(removal: Removal) -> None:
    assert removal.without.check(is_short=True).violated == removal.violates


def test_every_guard_is_left_out() -> None:
    """`exists` and `state` are second lines of defence: they are left out together with the first one."""
    texts = "".join(path.read_text() for path in SPEC.glob("*.tla"))
    named = set(re.findall(r'Guard\("([^"]+)"|"([^"]+)" \\(?:not)?in Without', texts))
    assert {name or other for name, other in named} == {guard for removal in REMOVALS for guard in removal.guards}
