"""What can go wrong with lanes, each with a sentence that says what to do."""


class LanesError(Exception):
    """Anything the lanes refuse."""


class LeaseLost(LanesError):  # noqa: N818 - a state of affairs, and the word of the documentation
    """Somebody else may have this message, or the lead, by now: the one who asks must stop and change nothing."""


class ServerUnfit(LanesError):  # noqa: N818 - see above
    """The Redis server cannot carry lanes."""


class PublishRefused(LanesError, ValueError):  # noqa: N818 - see above
    """A message and the queue it was published to do not fit."""


class Misconfigured(LanesError):  # noqa: N818 - see above
    """The app's configuration would break the order of lanes."""
