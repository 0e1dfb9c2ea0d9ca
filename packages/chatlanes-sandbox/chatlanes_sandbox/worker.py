"""A worker of the sandbox: Celery's, with a line on standard output when it takes updates.

The line goes to the supervisor and is not shown. Celery's warning about root is left out: the sandbox is for trying.
"""

import os
import sys
import warnings

from celery import maybe_patch_concurrency

READY = "chatlanes_sandbox.worker: ready"


def main() -> None:
    maybe_patch_concurrency()  # before anything else is imported: gevent replaces sockets
    from celery import signals
    from celery.bin.celery import main as celery
    from celery.exceptions import SecurityWarning

    warnings.simplefilter("ignore", SecurityWarning)
    signals.worker_ready.connect(_say_ready, weak=False)
    sys.exit(celery())


def _say_ready(**_: object) -> None:
    assert sys.__stdout__ is not None  # noqa: S101 - the supervisor reads it
    os.write(sys.__stdout__.fileno(), f"{READY}\n".encode())  # Celery has redirected `print` to its log


if __name__ == "__main__":
    if not __package__:  # run as a file, as by SIGHUP: this folder would hide other packages
        del sys.path[0]
    main()
