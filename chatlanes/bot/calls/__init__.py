"""The Bot API calls of one run of a handler: journaled, rate limited, fenced."""
