"""Takes updates from Telegram's webhook into the lanes: `chatlanes webhook`.

Promises that an update is answered with 200 only after Redis holds it durably, and with 503 within 5 s when it cannot.
Does not speak TLS: a proxy in front of it does.
"""
