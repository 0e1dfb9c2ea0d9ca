"""The messages that a worker holds, what it owes Redis for them, and the renewal of their leases."""
