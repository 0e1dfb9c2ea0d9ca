"""The import of a bot's module, and its framework's start-up and shutdown in each process."""
