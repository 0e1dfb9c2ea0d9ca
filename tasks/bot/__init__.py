"""What a handler sees: its context, the Bot API behind it, and the errors it may get."""
