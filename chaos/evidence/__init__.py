"""The records of a run: handlers, calls, faults, and the holds of each message."""
