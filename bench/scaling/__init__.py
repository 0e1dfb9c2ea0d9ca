"""A model of larger deployments, based on the measured cost of one update on this machine."""
