"""Everything on one machine, without a token: an embedded Redis, a simulator of the Bot API, and what runs them."""
