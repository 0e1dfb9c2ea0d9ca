"""The specification of the lanes in TLA+, and the checks of it and with it."""
