"""`python -m poller …`."""

import sys

from chatlanes.poller.__main__ import main

sys.exit(main())
