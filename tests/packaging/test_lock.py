"""The locks: the hash of every file that pip may install, independent of the registry."""

from __future__ import annotations

import re
from contextlib import suppress
from importlib import metadata
from pathlib import Path

import pytest

from tests.support import ROOT

ALL, AT_RUN_TIME, OLDEST = (ROOT / f"requirements{name}.lock" for name in ("", "-run", "-oldest"))


def pins(lock: Path) -> dict[str, set[str]]:
    """Requirement -> hashes."""
    entries = lock.read_text().replace("\\\n", "").splitlines()
    split = [re.split(r" +--hash=", entry) for entry in entries]
    return {requirement.partition(" ;")[0]: set(hashes) for requirement, *hashes in split}


@pytest.mark.parametrize("lock", [ALL, AT_RUN_TIME, OLDEST])
def test_pins_have_hashes_and_no_host(lock: Path) -> None:
    for requirement, hashes in pins(lock).items():
        assert re.fullmatch(r"[\w.-]+==[\w.]+", requirement)
        assert hashes, requirement
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", each) for each in hashes), requirement
    assert "://" not in lock.read_text()


def test_production_runs_the_tested_versions() -> None:
    everything = pins(ALL)
    assert all(everything[requirement] == hashes for requirement, hashes in pins(AT_RUN_TIME).items())


def test_installs_from_a_lock_check_hashes() -> None:
    for file in ("Makefile", "Dockerfile"):
        commands = (ROOT / file).read_text()
        assert re.search(r"pip install .*--require-hashes -r requirements(-run)?\.lock", commands), file


#: Licences that allow use in any program, by their names in SPDX and in the metadata of older packages.
PERMISSIVE = {
    *("Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "MIT", "MIT-0", "MPL-2.0", "PSF-2.0", "ZPL-2.1"),
    *("Apache Software License", "BSD License", "MIT License", "Mozilla Public License 2.0 (MPL 2.0)"),
}


def licences(package: str) -> set[str]:
    """Every licence that the package names."""
    about = metadata.metadata(package)
    if expression := about.get("License-Expression"):
        return set(re.split(r" AND | OR ", re.sub(r"[()]", "", expression)))
    named = [each for each in about.get_all("Classifier", []) if each.startswith("License ::")]
    return {each.rpartition(" :: ")[2] for each in named or filter(None, [about.get("License")])}


def test_packages_of_production_have_permissive_licences() -> None:
    found = {}
    for requirement in pins(AT_RUN_TIME):
        with suppress(metadata.PackageNotFoundError):  # for another version of Python, or another system
            found[requirement] = licences(requirement.partition("==")[0])
    assert len(found) > 40
    assert not {package: named for package, named in found.items() if not named or named - PERMISSIVE}
