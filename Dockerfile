# The proxy with its Chromium, for an unprivileged user:
#   docker build -t prerender-proxy .
#   docker run -p 8080:8080 -e PRERENDER_ORIGIN_URL=http://app:3000 prerender-proxy
#   docker run prerender-proxy render 'https://www.example.com/#!/state'

FROM debian:12-slim AS build
RUN apt-get update \
    && apt-get install --yes --no-install-recommends python3 python3-venv
WORKDIR /src
COPY pyproject.toml README.md ./
COPY prerender prerender
# What installs is not needed to run.
RUN python3 -m venv /opt/prerender \
    && /opt/prerender/bin/pip install --no-cache-dir . \
    && /opt/prerender/bin/pip uninstall --yes pip setuptools

FROM debian:12-slim
# Pages measure their text, for which two families of fonts will do: no glyph is in a snapshot.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends \
        ca-certificates chromium-headless-shell fonts-dejavu-core fonts-liberation python3 tini \
    && rm -rf /var/lib/apt/lists/*
COPY --from=build /opt/prerender /opt/prerender
# The admin listener stays on loopback: only the health check below asks it.
ENV PATH=/opt/prerender/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PRERENDER_SERVER_HOST=0.0.0.0
USER 10001:10001
EXPOSE 8080
HEALTHCHECK --interval=5s --timeout=3s --start-period=10s \
    CMD ["python3", "-IS", "-c", "from http.client import HTTPConnection; \
        admin = HTTPConnection('127.0.0.1', 8081, timeout=2); \
        admin.request('GET', '/healthz'); \
        raise SystemExit(admin.getresponse().status != 200)"]
# tini, as process 1, passes signals on and reaps what nobody else does.
ENTRYPOINT ["tini", "--", "prerender"]
CMD ["serve"]
