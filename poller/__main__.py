"""`python -m poller …`."""

import sys

from chatlanes.poller.__main__ import main
from chatlanes.settings.imports import warn_of_hidden_module

warn_of_hidden_module("poller")
sys.exit(main())
