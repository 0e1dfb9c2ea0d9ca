"""The parts of a handler that are done once, however often it runs: calls, steps, questions. All are in its journal."""
