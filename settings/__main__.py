"""`python -m settings …`."""

import sys

from chatlanes.settings.__main__ import main
from chatlanes.settings.imports import warn_of_hidden_module

warn_of_hidden_module("settings")
sys.exit(main())
