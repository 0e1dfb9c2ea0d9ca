"""Measures lanes beside stock Celery: everything in one run, the sides taking turns, medians of several rounds.

Promises that both sides of a comparison get the same updates, the same server settings and the same machine at nearly
the same time. Does not promise absolute numbers: other programs on the machine take their share, so read the ratios.
"""
