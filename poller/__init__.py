"""`python -m poller …` from a clone. The code is in chatlanes.poller; elsewhere use `chatlanes poller …`."""
