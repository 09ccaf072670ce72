# The image of Parley. `docker build -t parley .`
#
# Every package is checked against the hashes of requirements.lock in the first stage; the second
# installs from those files alone, without a network, and takes only what a running gateway needs.
# BASE can be any Python from 3.11 on a Debian: docker build --build-arg BASE=… .

ARG BASE=python:3.13-slim
# Builds the web page; nothing of it is in the image but the page.
ARG NODE=node:24-slim

FROM ${NODE} AS page
WORKDIR /src/webui
COPY webui/package.json webui/package-lock.json webui/.npmrc ./
RUN npm ci --no-audit --no-fund --loglevel=error
COPY webui ./
RUN npm run --silent build

FROM ${BASE} AS wheels
WORKDIR /src
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_NO_INPUT=1
RUN python -m venv /build
# The lock first: it changes seldom, so this layer is usually taken from the cache.
COPY requirements.lock ./
RUN /build/bin/pip wheel --quiet --require-hashes --wheel-dir /wheels --requirement requirements.lock \
    && /build/bin/pip install --quiet --no-index --find-links /wheels hatchling
COPY pyproject.toml hatch_build.py README.md LICENSE ./
COPY gateway gateway
COPY channels channels
COPY sessions sessions
COPY --from=page /src/gateway/page gateway/page
RUN /build/bin/pip wheel --quiet --no-deps --no-build-isolation --wheel-dir /wheels .
# The extras of the model agent and its tools; empty for an image without them.
ARG EXTRAS=[model,mcp]
RUN python -m venv /opt/parley \
    && /opt/parley/bin/pip install --quiet --no-index --find-links /wheels "parley-gateway${EXTRAS}" \
    && /opt/parley/bin/pip check

FROM ${BASE}
# A container is reached from outside, so its default settings ask for a token. Mount a file over
# /etc/parley/config.yaml to replace them; a module of a python agent is looked for beside it.
RUN groupadd --system --gid 10001 parley \
    && useradd --system --uid 10001 --gid parley --home-dir /data --no-create-home \
        --shell /usr/sbin/nologin parley \
    && install -d -o parley -g parley -m 0700 /data \
    && install -d -m 0755 /etc/parley \
    && printf 'server: {host: 0.0.0.0}\nauth: {mode: token}\n' > /etc/parley/config.yaml
# The same path as in the first stage: the commands of an environment name their interpreter.
COPY --from=wheels /opt/parley /opt/parley
ENV PATH=/opt/parley/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PARLEY_DATA_DIR=/data
WORKDIR /etc/parley
USER 10001:10001
VOLUME /data
EXPOSE 8765
# Asks the process itself: 503 while it starts, stops, or cannot write.
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python", "-c", "import http.client, os, sys; c = http.client.HTTPConnection('127.0.0.1', int(os.environ.get('PARLEY_SERVER__PORT', 8765)), timeout=4); c.request('GET', '/readyz'); sys.exit(c.getresponse().status != 200)"]
# No shell in between: SIGTERM reaches the gateway, which stops within server.shutdown_seconds.
STOPSIGNAL SIGTERM
ENTRYPOINT ["parley"]
CMD ["serve"]
