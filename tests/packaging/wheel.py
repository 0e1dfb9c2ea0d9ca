"""The wheels of this clone in an environment of their own, and a bot's folder with modules of conflicting names."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support import ROOT
from tests.support.outside import outside
from tests.support.process import Process

#: Each distribution, lowest first, and the files that its wheel is built from.
SOURCES = {
    "celery_lanes": ("packages/celery-lanes",),
    "chatlanes": ("chatlanes", "pyproject.toml", "README.md", "LICENSE"),
    "chatlanes_sandbox": ("packages/chatlanes-sandbox",),
}

#: Modules that a bot's folder often has, under names that also occur inside chatlanes.
MODULES = ("settings", "poller", "sandbox", "logs", "bot", "cli", "updates", "traces", "lanes", "errors")
PACKAGES = ("examples", "demo")

BOT = """
{imports}


def handle(ctx):
    answer = " ".join([{names}])
    number = ctx.text.rpartition("#")[2]
    ctx.reply(f"{{answer}} #{{number}}")
"""


def build(directory: Path) -> dict[str, Path]:
    """Builds each wheel from a copy of its sources, because setuptools leaves files next to them."""
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", directory]
    for name, sources in SOURCES.items():
        copy = directory / name
        for source in sources:
            path = ROOT / source
            if path.is_dir():
                inside = copy / source if len(sources) > 1 else copy
                shutil.copytree(path, inside, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info", "build"))
            else:
                shutil.copy(path, copy / source)
        subprocess.run([*command, copy], check=True)
    return {wheel.name.partition("-")[0]: wheel for wheel in directory.glob("*.whl")}


def requirements(wheel: Path) -> list[str]:
    """The requirements of a distribution, without its extras."""
    with zipfile.ZipFile(wheel) as archive:
        [name] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        lines = archive.read(name).decode().partition("\n\n")[0].splitlines()
    required = [line.removeprefix("Requires-Dist: ") for line in lines if line.startswith("Requires-Dist: ")]
    return [each for each in required if "extra ==" not in each]


def closure(requirements: Iterable[str]) -> set[str]:
    """The distributions that pip would install for these requirements, which are in this environment."""
    found: set[str] = set()
    missing = [Requirement(each) for each in requirements]
    while missing:
        wanted = missing.pop()
        if wanted.marker and not wanted.marker.evaluate({"extra": ""}):
            continue
        assert metadata.version(wanted.name) in wanted.specifier, wanted
        if (name := canonicalize_name(wanted.name)) not in found:
            found.add(name)
            missing += [Requirement(each) for each in metadata.requires(name) or ()]
    return found


def entries_of(distributions: Iterable[str]) -> set[Path]:
    """The names of these distributions at the top of the folder of packages."""
    packages = Path(sysconfig.get_path("purelib"))
    files = (file for name in distributions for file in metadata.files(name) or ())
    return {packages / file.parts[0] for file in files if file.parts[0] not in ("..", "__pycache__")}


class Installed:
    """Some of the wheels in an environment of their own, with packages of this one: all, or those that `only` needs.
    PATH has its commands and the system's.
    """

    def __init__(self, wheels: Iterable[Path], directory: Path, *, only: Iterable[str] = ()) -> None:
        self.directory = directory
        venv.create(directory, with_pip=False)
        self.packages = Path(sysconfig.get_path("purelib", "venv", {"base": str(directory)}))
        pip = [sys.executable, "-m", "pip", f"--python={self.python}", "install", "--quiet", "--no-deps", "--no-index"]
        subprocess.run([*pip, *wheels], check=True)
        self.installed = {path.name for path in self.packages.iterdir()}
        if only:
            for entry in entries_of(closure(only)):
                (self.packages / entry.name).symlink_to(entry)
        else:
            # A .pth file adds packages, but not this clone, because .pth files of that folder are not read.
            (self.packages / "dependencies.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
        celery = self.directory / "bin" / "celery"
        celery.write_text(f"#!{self.python}\nfrom celery.__main__ import main\nmain()\n")
        celery.chmod(0o755)

    @property
    def python(self) -> Path:
        return self.directory / "bin" / "python"

    def command(self, *words: str) -> list[str]:
        """The command line in an activated environment."""
        return [str(self.directory / "bin" / words[0]), *words[1:]]

    def settings(self, settings: Mapping[str, object]) -> dict[str, str]:
        path = f"{self.directory / 'bin'}:/usr/bin:/bin"
        return {"PATH": path, "PYTHONPATH": "", **{name: str(value) for name, value in settings.items()}}

    def run(self, *words: str, at: Path, **settings: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*words),
            cwd=at,
            env={**outside(), **self.settings(settings)},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def start(self, *words: str, at: Path, **settings: object) -> Process:
        return Process("-".join(words[:2]), self.command(*words), at, self.settings(settings), inherited=outside())


def write_bot(folder: Path, *, tasks_as_package: bool) -> Path:
    """A bot that imports its own modules, each of which has its name as a constant."""
    folder.mkdir()
    packages = (*PACKAGES, "tasks") if tasks_as_package else PACKAGES
    modules = MODULES if tasks_as_package else (*MODULES, "tasks")
    for name in modules:
        (folder / f"{name}.py").write_text(f"NAME = 'my-{name}'\n")
    for name in packages:
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text("from .inside import NAME\n")
        (folder / name / "inside.py").write_text(f"NAME = 'my-{name}'\n")
    names = (*modules, *packages)
    imports = "\n".join(f"import {name}" for name in names)
    text = BOT.format(imports=imports, names=", ".join(f"{name}.NAME" for name in names))
    (folder / "mybot.py").write_text(text)
    return folder


def answer_of(*, tasks_as_package: bool) -> str:
    names = (*MODULES, *PACKAGES, "tasks") if tasks_as_package else (*MODULES, "tasks", *PACKAGES)
    return " ".join(f"my-{name}" for name in names)
