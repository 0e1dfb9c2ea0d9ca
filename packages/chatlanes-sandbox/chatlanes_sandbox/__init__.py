"""A simulated Bot API with a page; and with it a complete installation of chatlanes on one machine, without a token."""
