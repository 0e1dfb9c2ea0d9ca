"""The models that TLC checks: a module of this folder with bounds, and what must hold in it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from spec.tlc import Answer, check

INVARIANTS = ("Order", "Exclusion", "NoDeadlock", "Once", "NoZombie", "Poison", "NothingLost", "OneState", "HeadActive")
ACTIONS = ("FencesGrow", "LeasesHold")
FAULTS = ("Crashes", "Freezes", "Losses", "Repeats", "Returns")


@dataclass(frozen=True)
class Model:
    """`keys`: those of each message, in the order of the source. `faults`: how often each of FAULTS happens at most."""

    name: str
    module: str = "Core"
    keys: tuple[str, ...] = ("a", "ab", "b")
    workers: int = 2
    faults: tuple[int, ...] = (1, 1, 0, 0, 0)
    max_deaths: int = 2
    specification: str = ""
    is_liveness: bool = False
    invariants: tuple[str, ...] = INVARIANTS
    actions: tuple[str, ...] = ACTIONS
    without: frozenset[str] = frozenset()
    #: of the module Limits: those of each message, in digits
    limits: tuple[str, ...] = ()

    def check(self) -> Answer:
        return check(self._module(), self._config())

    def _module(self) -> str:
        sets = [_set(f'"{key}"' for key in keys) for keys in self.keys]
        limits = [_set(each) for each in self.limits]
        return f"""---- MODULE Run ----
EXTENDS {self.module}, TLC
CONSTANTS {", ".join(self._names())}
TheKeysOf == << {", ".join(sets)} >>
TheLimitsOf == << {", ".join(limits)} >>
Alike == Permutations(Workers)
====
"""

    def _names(self) -> list[str]:
        return [f"w{n}" for n in range(1, self.workers + 1)]

    def _config(self) -> str:
        names = self._names()
        constants = {
            **{name: name for name in names},
            "Messages": _set(map(str, range(1, len(self.keys) + 1))),
            "Keys": _set(f'"{key}"' for key in sorted(set("".join(self.keys)))),
            "Workers": _set(names),
            "Nobody": "Nobody",
            "MaxDeaths": str(self.max_deaths),
            "Without": _set(f'"{name}"' for name in sorted(self.without)),
            **dict(zip(FAULTS, map(str, self.faults), strict=True)),
        }
        lines = ["CONSTANTS", "  KeysOf <- TheKeysOf", *(f"  {name} = {value}" for name, value in constants.items())]
        lines += ["  Replays = 1"] * (self.module == "Letters")
        lines += ["  LimitsOf <- TheLimitsOf", "  Permits = 1"] * (self.module == "Limits")
        specification = self.specification or ("FairSpec" if self.is_liveness else "Spec")
        if self.is_liveness:
            return "\n".join([*lines, f"SPECIFICATION {specification}", "PROPERTY AllEnd"])
        lines += [
            f"SPECIFICATION {specification}",
            "SYMMETRY Alike",
            *(f"INVARIANT {name}" for name in self.invariants),
        ]
        return "\n".join([*lines, *(f"PROPERTY {name}" for name in self.actions)])


def _set(items: Iterable[str]) -> str:
    return "{" + ", ".join(items) + "}"


_OF_LETTERS = (
    "LettersOrder",
    "Exclusion",
    "NoDeadlock",
    "Once",
    "NoZombie",
    "LettersNothingLost",
    "OneState",
    "HeadActive",
)

_LIMITED = Model(
    "limits: a crash, a freeze, a retry",
    module="Limits",
    keys=("a", "a", ""),
    limits=("12", "2", "12"),
    specification="LimitsSpec",
    faults=(1, 1, 0, 0, 1),
    max_deaths=1,
    invariants=("AtMost", "NoCircle", "OnlyActive", "Exclusion", "Once", "NoZombie", "NothingLost", "OneState"),
    actions=(),
)

#: Those of `make spec`. All have three messages on two keys, and two workers.
MODELS = (
    Model("crash, freeze, lost reply, repeated append", faults=(1, 1, 1, 1, 0)),
    Model("crash, freeze, release, retry, burial", faults=(1, 1, 0, 0, 1), max_deaths=1),
    Model(
        "dead letters: replay and drop, with a crash",
        module="Letters",
        specification="LettersSpec",
        faults=(1, 0, 0, 0, 1),
        invariants=_OF_LETTERS,
        actions=("FencesGrow",),
    ),
    _LIMITED,
    Model("liveness", faults=(1, 1, 0, 0, 0), is_liveness=True),
)


@dataclass(frozen=True)
class Removal:
    """Guards without which a promise is broken. Two guards protect each other where one is enough."""

    guards: tuple[str, ...]
    violates: str
    model: Model = Model("a removed guard", faults=(1, 1, 1, 0, 0))

    @property
    def without(self) -> Model:
        is_action = self.violates in ACTIONS
        return replace(
            self.model,
            without=frozenset(self.guards),
            invariants=() if is_action else (self.violates,),
            actions=(self.violates,) if is_action else (),
        )


_REPEATED = Model("an append is repeated", faults=(0, 0, 0, 1, 0))
_SIMPLY_LIMITED = replace(_LIMITED, keys=("", "", ""), faults=(0, 0, 0, 0, 1))
REMOVALS = (
    Removal(("a free permit",), "AtMost", _SIMPLY_LIMITED),
    Removal(("order of limits",), "NoCircle", _SIMPLY_LIMITED),
    Removal(("left permits",), "OnlyActive", _SIMPLY_LIMITED),
    Removal(("fence",), "NoZombie"),
    Removal(("fence of a lease",), "FencesGrow"),
    Removal(("fence of a take-back",), "FencesGrow"),
    Removal(("fence of a lease", "fence of a take-back"), "NoZombie"),
    Removal(("state", "fence of a take-back"), "NoZombie"),
    Removal(("first in all",), "Exclusion"),
    Removal(("at once",), "NoDeadlock", Model("a deadlock", keys=("ab", "ab"), faults=(0, 0, 0, 0, 0))),
    Removal(("advance",), "HeadActive"),
    Removal(("advance",), "NoDeadlock"),
    Removal(("dedup",), "Once", _REPEATED),
    Removal(("dedup", "exists"), "Order", _REPEATED),
    Removal(("deaths",), "Poison", Model("deaths", faults=(1, 1, 0, 0, 0), max_deaths=1)),
    Removal(("lease is over",), "LeasesHold"),
    Removal(("lease removed",), "OneState"),
    Removal(("confirm after append",), "NothingLost"),
    Removal(("settle after the run",), "NothingLost"),
    Removal(
        ("buried",),
        "OneState",
        Model("a replay", module="Letters", specification="LettersSpec", faults=(0, 0, 0, 0, 0)),
    ),
)
