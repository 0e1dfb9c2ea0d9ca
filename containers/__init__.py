"""docker-compose.yml in real containers of this machine, with podman: `make containers`."""
