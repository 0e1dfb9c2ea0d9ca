"""Blows to Redis that may cost updates: no others are lost, and each loss is reported once, with its extent."""
