"""Checks the evidence of a run; pure functions."""
