"""A program that kills: the whole path under fire, and a count of what went wrong.

`make chaos` runs it. Promises that the same seed makes the same plan; not that two runs are alike: the machine has a
say.
"""
