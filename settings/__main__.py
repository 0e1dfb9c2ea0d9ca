"""`python -m settings …`."""

from chatlanes.settings.__main__ import main

main()
