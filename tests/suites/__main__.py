"""`make celery-suite`: the tests of Celery and kombu, on stock and with lanes, each on a real Redis of its own.

Fetches the sources of the installed versions from the package registry. Prints each test whose result with lanes
differs from that on stock, and fails unless these are the tests that docs/compatibility.md lists.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from celery_lanes.embedded_server import start_server
from tests.support import ROOT

PAGE = ROOT / "docs" / "compatibility.md"
LOCKS = ("requirements.lock", "requirements-oldest.lock", "tests/suites/requirements.lock")
PLUGINS = ("pytest-rerunfailures", "pytest-timeout")
_LOCKED = re.compile(r"^([\w.-]+)==(\S+) \\\n(?:    --hash=\S+(?: \\)?\n)+", re.MULTILINE)


class Suite(NamedTuple):
    """Tests of a distribution. `modes` are how lanes are used (plugin.py); stock runs first."""

    name: str
    of: str
    arguments: tuple[str, ...]
    modes: tuple[str, ...]


SUITES = (
    Suite("kombu-unit", "kombu", ("t/unit/transport/test_redis.py",), ("installed",)),
    Suite("kombu", "kombu", ("t/integration/test_redis.py", "t/integration/test_redis_brpop_qos.py"), ("installed",)),
    # It needs packages of Azure to be imported at all.
    Suite("celery", "celery", ("t/integration", "--ignore=t/integration/test_backend.py"), ("installed", "used")),
)

#: The id of a test -> "passed", "failed" or "skipped".
Results = Mapping[str, str]


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.suites", description=__doc__)
    parser.add_argument("suites", nargs="*", metavar="SUITE", help=", ".join(each.name for each in SUITES))
    parser.add_argument("-k", metavar="EXPRESSION", help="only these tests of them, as in pytest")
    chosen = parser.parse_args(arguments)
    suites = [each for each in SUITES if not chosen.suites or each.name in chosen.suites]
    with tempfile.TemporaryDirectory(prefix="suites-") as folder:
        fetched = fetch(Path(folder))
        more = ["-k", chosen.k] if chosen.k else []
        good = [check(suite, fetched, more) for suite in suites]
    return 0 if good and all(good) else 1


def check(suite: Suite, fetched: Path, more: Sequence[str]) -> bool:
    """Run a suite on stock and with lanes, print the differences, and return whether these are the documented ones.

    They run side by side, because most of the tests wait.
    """
    with ThreadPoolExecutor() as pool:
        stock, *with_lanes = pool.map(lambda mode: repeated(suite, fetched, mode, more), ("", *suite.modes))
    good = report(suite.name, "stock", stock)
    for mode, found in zip(suite.modes, with_lanes, strict=True):
        good = report(suite.name, f"lanes {mode}", found) and good
        good = explained(stock, found, documented(suite, mode)) and good
    return good


def repeated(suite: Suite, fetched: Path, mode: str, more: Sequence[str]) -> Results:
    """The results of a suite. A test that fails runs once more, alone: some depend on what others left."""
    found = run(suite, fetched, mode, more)
    for test in sorted({_function(test) for test, result in found.items() if result == "failed"}):
        again = run(suite, fetched, mode, ids=[test])
        found = {each: again.get(each, result) if _function(each) == test else result for each, result in found.items()}
    return found


def fetch(folder: Path) -> Path:
    """The tests of the installed Celery and kombu, and the plugins that they need, with the hashes of the locks."""
    locked = {}
    for lock in LOCKS:
        text = (ROOT / lock).read_text()
        locked.update({(found[1], found[2]): found[0] for found in _LOCKED.finditer(text)})
    wanted = folder / "wanted.txt"
    for name in ("celery", "kombu"):
        wanted.write_text(locked[name, version(name)])
        _pip("download", "--no-binary=:all:", f"--dest={folder}", f"--requirement={wanted}")
        [archive] = folder.glob(f"{name}-*.tar.gz")
        with tarfile.open(archive) as opened:
            opened.extractall(folder, filter="data")
        archive.unlink()
        [source] = folder.glob(f"{name}-*")
        # Beside its tests, a package would be imported instead of the installed one.
        for entry in [*source.iterdir()]:
            if entry.name not in ("t", "pyproject.toml", "setup.cfg"):
                shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        source.rename(folder / name)
    wanted.write_text("".join(block for (name, _), block in locked.items() if name in PLUGINS))
    _pip("install", f"--target={folder / 'plugins'}", f"--requirement={wanted}")
    return folder


def _pip(command: str, *arguments: str) -> None:
    quiet = ["--quiet", "--disable-pip-version-check", "--no-deps", "--require-hashes"]
    subprocess.run([sys.executable, "-m", "pip", command, *quiet, *arguments], check=True)


def run(suite: Suite, fetched: Path, mode: str, more: Sequence[str] = (), ids: Sequence[str] = ()) -> Results:
    """The results of a suite, or of the tests `ids` of it. The output of pytest is in SUITE_OUTPUT, if that is set."""
    with (
        tempfile.TemporaryDirectory(dir=fetched) as folder,
        start_server(Path(folder, "redis"), appendfsync="no", ends_with_parent=True) as server,
        Path(os.environ.get("SUITE_OUTPUT", os.devnull)).open("a") as output,
    ):
        results = Path(folder, "results.json")
        command = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider"]
        command += ["-p", "celery.contrib.pytest"] if suite.of == "celery" else []
        command += ["-p", "tests.suites.plugin", *(ids or existing(suite, fetched)), *more]
        env = {**environment(server.url, fetched), "SUITE_LANES": mode, "SUITE_RESULTS": str(results)}
        return until_finished(command, results, cwd=fetched / suite.of, env=env, stdout=output, stderr=output)


def existing(suite: Suite, fetched: Path) -> list[str]:
    """The arguments of a suite, without files that older versions do not have."""
    return [each for each in suite.arguments if each.startswith("-") or Path(fetched, suite.of, each).exists()]


def until_finished(command: Sequence[str], results: Path, **options: Any) -> Results:
    """Run pytest until all tests have a result: a test that takes too long ends it, and it goes on without that one."""
    found: Results = {}
    while True:
        pytest = subprocess.run(command, process_group=0, check=False, **options)
        known, found = len(found), json.loads(results.read_text()) if results.exists() else {}
        if pytest.returncode != -signal.SIGKILL or len(found) == known:
            return found


def environment(url: str, fetched: Path) -> dict[str, str]:
    """The variables by which the suites find Redis and their packages."""
    port = str(urlsplit(url).port)
    return {
        **os.environ,
        "PATH": os.pathsep.join((os.path.dirname(sys.executable), os.environ["PATH"])),  # some tests run `celery`
        "PYTHONPATH": os.pathsep.join(map(str, (fetched / "plugins", ROOT, "."))),
        "TEST_BROKER": f"redis://127.0.0.1:{port}/0",
        "TEST_BACKEND": f"redis://127.0.0.1:{port}/1",
        "REDIS_HOST": "127.0.0.1",
        "REDIS_PORT": port,
        "REDIS_6379_TCP": port,
    }


def report(suite: str, how: str, results: Results) -> bool:
    """Print how many tests have passed. False if there are none."""
    count = {each: sum(result == each for result in results.values()) for each in ("passed", "failed", "skipped")}
    print(f"{suite}, {how}: {', '.join(f'{number} {each}' for each, number in count.items())}", flush=True)
    return count["passed"] > 0


def different(stock: Results, lanes: Results) -> list[str]:
    """The tests that pass on stock and not with lanes."""
    return sorted(name for name, result in stock.items() if result == "passed" and lanes.get(name) != "passed")


def documented(suite: Suite, mode: str) -> set[str]:
    """The tests that the page lists for a suite, also for its installed version alone, without their files."""
    found, page = set(), PAGE.read_text()
    for section in (f"{suite.name} {mode}", f"{suite.name} {mode} {version(suite.of).rpartition('.')[0]}"):
        rows = page.partition(f"<!-- {section} -->")[2].partition("<!-- end -->")[0]
        found |= set(re.findall(r"^\| `(\S+)` \|", rows, re.MULTILINE))
    return found


def explained(stock: Results, lanes: Results, listed: set[str]) -> bool:
    """Whether the page lists the tests that differ, and no others that ran."""
    differ = {test: _name(test) for test in different(stock, lanes)}
    for test, name in differ.items():
        print(f"  differs: {test}{'' if name in listed else ' (not in docs/compatibility.md)'}", flush=True)
    passed = listed & {_name(test) for test, result in lanes.items() if result == "passed"} - {*differ.values()}
    for name in sorted(passed):
        print(f"  passes, although docs/compatibility.md lists it: {name}", flush=True)
    return not passed and {*differ.values()} <= listed


def _function(test: str) -> str:
    """The test without its parameters."""
    return test.partition("[")[0]


def _name(test: str) -> str:
    """As on the page: without its file and its parameters."""
    return _function(test).partition("::")[2]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
