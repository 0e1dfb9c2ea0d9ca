"""The kombu transport: publish is append, consume is fetch, acknowledge is settle."""
