"""The models that TLC checks: a module of this folder with bounds, and what must hold in it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from spec.tlc import Answer, check, module_text

INVARIANTS = ("Order", "Exclusion", "NoDeadlock", "Once", "NoZombie", "Poison", "NothingLost", "OneState", "HeadActive")
ACTIONS = ("FencesGrow", "LeasesHold")
OF_REFINEMENTS = ("StoppedStays", "StopEnds", "ShieldHolds", "NoneStartsPaused")
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
    #: Constants of the module, in addition to those of Core.
    more: tuple[str, ...] = ()

    def check(self, *, is_short: bool = False) -> Answer:
        return check(self._module(), self._config(), is_short=is_short)

    def _module(self) -> str:
        sets = [_set(f'"{key}"' for key in keys) for keys in self.keys]
        limits = [_set(each) for each in self.limits]
        more = f"CONSTANTS {', '.join(self._names())}\nAlike == Permutations(Workers)\n"
        definitions = {"KeysOf": f"<< {', '.join(sets)} >>", "LimitsOf": f"<< {', '.join(limits)} >>"}
        return module_text(f"{self.module}, TLC", definitions, more)

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
        lines += ["  LimitsOf <- TheLimitsOf"] * bool(self.limits)
        lines += [f"  {each}" for each in self.more]
        specification = self.specification or ("FairSpec" if self.is_liveness else "Spec")
        if self.is_liveness:
            return "\n".join([*lines, f"SPECIFICATION {specification}", "PROPERTY AllEnd"])
        lines += [
            f"SPECIFICATION {specification}",
            *["SYMMETRY Alike"] * (self.workers > 1),
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
    more=("Permits = 1",),
)

_SHARED = ("Exclusion", "NoDeadlock", "Once", "NoZombie", "OneState", "HeadActive")

TIMERS = Model(
    "timers: set, cancelled, fired, with a crash",
    module="Timers",
    keys=("a", "a"),
    specification="TimersSpec",
    faults=(1, 1, 0, 0, 0),
    invariants=(*_SHARED, "TimerOnce", "TimerNotEarly", "TimerCancelled", "TimerKept"),
    actions=("FencesGrow",),
    more=("Replays = 0", "TimerMessages = {2}"),
)
INTERRUPTING = Model(
    "groups: interrupts, stops and shields, with a crash",
    module="Groups",
    keys=("a", "a", "a"),
    workers=1,
    specification="GroupsSpec",
    faults=(1, 0, 0, 0, 0),
    invariants=(*_SHARED, "AllRun", "EachOnce", "Whole"),
    actions=("FencesGrow", "StoppedStays", "StopEnds", "ShieldHolds"),
    more=("Replays = 0", "Most = 2", "Interrupts = TRUE", "Steers = FALSE", "Stops = 1"),
)
STEERING = replace(
    INTERRUPTING,
    name="groups: runs that take what arrives, and stops, with a crash",
    actions=("FencesGrow", "StopEnds"),
    more=("Replays = 0", "Most = 3", "Interrupts = FALSE", "Steers = TRUE", "Stops = 1"),
)
PAUSES = Model(
    "pauses and rates, with a release, a retry or a burial",
    module="Pauses",
    keys=("a", "ab"),
    workers=1,
    specification="PausesSpec",
    faults=(0, 0, 0, 0, 1),
    invariants=("Order", "Exclusion", "Once", "NoZombie", "NothingLost", "OneState", "HeadActive"),
    actions=("FencesGrow", "NoneStartsPaused"),
    more=("Replays = 0", "PauseTimes = 1", 'Paced = {"b"}'),
)
GAPS = Model(
    "gaps of resequencing",
    module="Gaps",
    specification="GapsSpec",
    faults=(0, 0, 0, 0, 0),
    invariants=("Exclusion", "Once", "NothingLost", "OneState", "HeadActive", "GapsOrder", "LateForAReason"),
    actions=("FencesGrow",),
    more=("Replays = 0",),
)

RESTARTS = Model(
    "a server that restarts with or without its last writes, and a crash",
    module="Restarts",
    keys=("a", "ab"),
    specification="RestartSpec",
    workers=1,
    faults=(1, 0, 0, 1, 0),
    invariants=("Exclusion", "NoDeadlock", "RestartNothingLost", "OneState", "HeadActive"),
    actions=(),
    more=("Replays = 0", "RestartTimes = 1"),
)

#: Those of `make spec`. The core has three messages on two keys, and two workers; a refinement is smaller.
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
        more=("Replays = 1",),
    ),
    _LIMITED,
    TIMERS,
    INTERRUPTING,
    STEERING,
    PAUSES,
    GAPS,
    RESTARTS,
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
        is_action = self.violates in (*ACTIONS, *OF_REFINEMENTS)
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
        Model("a replay", module="Letters", specification="LettersSpec", faults=(0, 0, 0, 0, 0), more=("Replays = 1",)),
    ),
    Removal(("timer is due",), "TimerNotEarly", TIMERS),
    Removal(("timer removed",), "TimerOnce", TIMERS),
    Removal(("timer at once",), "TimerKept", TIMERS),
    Removal(("cancel",), "TimerCancelled", TIMERS),
    Removal(("open",), "AllRun", STEERING),
    Removal(("interrupt",), "AllRun", INTERRUPTING),
    Removal(("shield",), "ShieldHolds", INTERRUPTING),
    Removal(("stopped",), "StoppedStays", INTERRUPTING),
    Removal(("stop takes back",), "StopEnds", INTERRUPTING),
    Removal(("pause recalls",), "NoneStartsPaused", PAUSES),
    Removal(("resume advances",), "HeadActive", PAUSES),
    Removal(("stay back",), "NoneStartsPaused", PAUSES),
    Removal(("note start",), "NoneStartsPaused", PAUSES),
    Removal(("confirm after sync",), "RestartNothingLost", RESTARTS),
    Removal(("hold",), "LateForAReason", GAPS),
    Removal(("behind a held one",), "LateForAReason", GAPS),
    Removal(("lowest first",), "LateForAReason", GAPS),
)
