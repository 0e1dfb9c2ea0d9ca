"""Updates that wait at the simulated Telegram, and the two ways to get them: long polls and a webhook."""
