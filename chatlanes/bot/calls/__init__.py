"""What a run of a handler does once, however often it runs: calls, steps and questions. All are in its journal."""
