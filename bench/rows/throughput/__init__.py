"""Rows about a backlog of tasks that do nothing."""
