"""Benchmarks lanes against stock Celery. Everything is measured in one run; the sides alternate; figures are medians.

Both sides of a comparison get the same updates, the same server settings and the same machine at nearly the same time.
Absolute numbers depend on the other programs on the machine, so read the ratios.
"""
