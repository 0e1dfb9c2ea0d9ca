"""A deterministic simulation of many workers, appenders and a person, in one process on the real scripts."""
