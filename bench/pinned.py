"""python -m bench.pinned PROCESSOR MODULE [ARGUMENT …]: the module, on one processor of this machine.

So that who sends requests and who answers them do not take each other's time.
"""

from __future__ import annotations

import os
import runpy
import sys


def main() -> None:
    place, module, *arguments = sys.argv[1:]
    processors = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {processors[int(place) % len(processors)]})
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
