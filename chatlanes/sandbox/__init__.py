"""A complete installation on one machine without a token: an embedded Redis, a simulated Bot API, and the
processes of chatlanes."""
