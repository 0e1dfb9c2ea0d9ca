"""Chaos tests: runs the whole system, kills its parts, and checks the result.

`make chaos` runs it. The same seed gives the same plan; the runs still differ, because timing depends on the machine.
"""
