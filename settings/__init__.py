"""`python -m settings …` from a clone. The code is in chatlanes.settings; elsewhere use `chatlanes settings …`."""
