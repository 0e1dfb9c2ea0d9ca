"""Two bots to try chatlanes with: `echo` runs when BOT is not set, `tour` in a sandbox that is given no bot."""
