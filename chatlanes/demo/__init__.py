"""Two bots to try chatlanes with: `echo` runs if BOT is not set, `tour` in a sandbox without a bot."""
