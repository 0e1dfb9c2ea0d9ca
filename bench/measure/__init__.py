"""The measurement of a row: its environment, its sizes, counters, and the arithmetic of the results."""
