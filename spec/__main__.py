"""`python -m spec`: checks the models of models.py, each with every state within its bounds.

`--only WORDS` chooses models by name; `--faults 2 1 1 1 1` checks one with other bounds (crashes, frozen workers, lost
replies, repeated appends, returned messages).
"""

from __future__ import annotations

import argparse
import sys
import time

from spec.models import FAULTS, MODELS, Model


def main() -> int:
    arguments = _arguments()
    models = [Model("these bounds", faults=tuple(arguments.faults))] if arguments.faults else MODELS
    return max([_check(model) for model in models if arguments.only in model.name], default=2)


def _check(model: Model) -> int:
    begun_s = time.monotonic()
    answer = model.check()
    found = f"{answer.violated} is violated" if answer.violated else "all holds"
    print(f"{model.name}: {found}; {answer.states:,} states, {time.monotonic() - begun_s:.0f} s")  # noqa: T201
    if answer.violated:
        print(answer.output)  # noqa: T201
    return 1 if answer.violated else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m spec", description=__doc__)
    parser.add_argument("--only", default="", help="words in the name of a model")
    parser.add_argument("--faults", type=int, nargs=len(FAULTS), metavar="N", help=", ".join(FAULTS))
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
