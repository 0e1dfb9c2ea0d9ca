"""Runs docker-compose.yml in real containers on this machine, with podman: `make containers`."""
