"""Input for the measured programs: generated updates, a simulator of the Bot API, requests and calls."""
