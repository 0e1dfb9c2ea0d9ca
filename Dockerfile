# One image for every part: poller, receiver, worker, Flower. The command selects the part.
FROM python:3.13-slim AS build
WORKDIR /src
RUN python -m venv /venv
COPY pyproject.toml requirements.lock requirements-run.lock README.md LICENSE ./
COPY chatlanes chatlanes
COPY packages/celery-lanes packages/celery-lanes
# Runtime packages, each file verified by its hash. PACKAGES: packages that your bot imports; those in the lock get the
# lock's version.
ARG PACKAGES=""
RUN /venv/bin/pip install --no-cache-dir --disable-pip-version-check --require-hashes -r requirements-run.lock \
 && sed -n 's/ .*//; /==/p' requirements.lock > versions \
 && /venv/bin/pip install --no-cache-dir --disable-pip-version-check --constraint versions ./packages/celery-lanes . $PACKAGES

FROM python:3.13-slim
RUN useradd --create-home --uid 10001 bot
COPY --from=build /venv /venv
ENV PATH=/venv/bin:$PATH PYTHONUNBUFFERED=1
# Your bot's folder: `BOT=mybot:bot` is searched here first.
WORKDIR /bot
# A numeric id, so that Kubernetes can verify that it is not root.
USER 10001
STOPSIGNAL SIGTERM
CMD ["chatlanes", "worker", "--loglevel=INFO"]
