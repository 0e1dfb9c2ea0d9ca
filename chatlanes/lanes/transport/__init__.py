"""The kombu side: a transport whose queues keep the order of their lanes."""
