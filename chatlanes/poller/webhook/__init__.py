"""The webhook receiver: appends updates from Telegram's webhook to the lanes (`chatlanes webhook`).

Guarantees that an update is answered with 200 only after it is durable in Redis, and with 503 within 5 s if it cannot
be stored. Does not speak TLS: use a proxy in front of it.
"""
