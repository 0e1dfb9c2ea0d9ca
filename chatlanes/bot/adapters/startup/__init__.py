"""The import of a bot's module, and what its framework does at the start and the end of a process."""
