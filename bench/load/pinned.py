"""python -m bench.load.pinned PROCESSOR MODULE [ARGUMENT …]: run the module, pinned to one processor.

Keeps the processor time of a load generator and of the measured server apart.
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
