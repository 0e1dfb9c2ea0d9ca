# Replaces the image prom/prometheus for docker-compose.yml, with Debian's package.
FROM python:3.13-slim
RUN apt-get update && apt-get install -y --no-install-recommends prometheus wget && mkdir /prometheus && chown nobody /prometheus
USER nobody
ENTRYPOINT ["prometheus"]
