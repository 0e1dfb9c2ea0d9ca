"""Rows about processor time, memory and commands."""
