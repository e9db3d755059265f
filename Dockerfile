# The proxy with its Chromium, for an unprivileged user, whichever one. Docker, Podman and Buildah build it:
#   docker build -t prerender-proxy .
#   docker run -p 8080:8080 -p 127.0.0.1:8081:8081 -e PRERENDER_ORIGIN_URL=http://app:3000 \
#     -e PRERENDER_SITE_URL=https://www.example.com prerender-proxy
#   docker run prerender-proxy render 'https://www.example.com/#!/state'

# scripts/pin-base gives it the digest of today's image.
ARG BASE=docker.io/library/debian:13-slim

FROM ${BASE} AS build
RUN apt-get update \
    && apt-get install --yes --no-install-recommends binutils python3-pip python3-venv
WORKDIR /src
# What the package depends on changes less often than the package: a layer of its own, here and below.
# Install exactly requirements.lock (with tracing); the image has no pip. A third of the wheels' size are
# symbols for debuggers.
COPY requirements.lock ./
RUN python3 -m venv --without-pip /opt/prerender \
    && pip --python /opt/prerender install --no-cache-dir --require-hashes --requirement requirements.lock \
    && find /opt/prerender -name '*.so*' -type f -exec strip --strip-unneeded {} + \
    # What wheels bring along that nothing here imports: programs, sources, other interfaces.
    && cd /opt/prerender/lib/python3*/site-packages \
    && rm -r html_to_markdown/bin lxml/includes lxml/isoschematron lxml/objectify.* pydantic/v1 \
        google/api google/cloud google/gapic google/logging google/longrunning google/type \
        cffi pycparser zstandard/_cffi.* zstandard/backend_cffi.py \
    && find opentelemetry/semconv/_incubating -type f ! -name 'otel_*' ! -name '__init__*' -delete \
    && find /opt/prerender '(' -name '*.px[di]' -o -name '*.pyx' -o -name '*.pyi' -o -name '*.[ch]' ')' -delete
COPY pyproject.toml ./
COPY LICENSE README.md ./
COPY scripts/metadata.py scripts/
COPY prerender prerender
RUN pip --python /opt/prerender install --no-cache-dir --no-deps --root /package .

FROM ${BASE} AS system
# Pages measure their text, and pictures of them show it: fonts for the scripts of the world.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends \
        ca-certificates chromium-headless-shell \
        fonts-droid-fallback fonts-liberation fonts-noto-color-emoji fonts-noto-core \
        python3 tini
COPY --from=build /opt/prerender /opt/prerender
COPY scripts/image-root /
RUN /image-root /root-of-the-image

# Only files that are used at run time: no package manager, no Perl, no graphics drivers.
FROM scratch
COPY --from=system /root-of-the-image /
COPY --from=build /opt/prerender /opt/prerender
COPY --from=build /package/opt/prerender /opt/prerender
# The dashboard is meant to be published to the host's loopback only, with the token that the start
# logs or one that is set. Nothing is written but to /tmp, so the root filesystem may be read-only.
ENV PATH=/opt/prerender/bin:/usr/bin \
    HOME=/tmp \
    PYTHONDONTWRITEBYTECODE=1 \
    PRERENDER_SERVER_HOST=0.0.0.0 \
    PRERENDER_ADMIN_HOST=0.0.0.0 \
    PRERENDER_ADMIN_TOKEN=auto
LABEL org.opencontainers.image.title="prerender-proxy" \
    org.opencontainers.image.version="0.2.0" \
    org.opencontainers.image.description="A reverse proxy that answers crawlers with HTML snapshots" \
    org.opencontainers.image.licenses="Apache-2.0" \
    org.opencontainers.image.authors="the prerender-proxy authors" \
    org.opencontainers.image.vendor="the prerender-proxy authors" \
    org.opencontainers.image.base.name="docker.io/library/debian:13-slim"
USER 10001:10001
EXPOSE 8080 8081
HEALTHCHECK --interval=5s --timeout=3s --start-period=10s \
    CMD ["python3", "-IS", "-c", "from http.client import HTTPConnection; \
        admin = HTTPConnection('127.0.0.1', 8081, timeout=2); \
        admin.request('GET', '/healthz'); \
        raise SystemExit(admin.getresponse().status != 200)"]
# tini, as process 1, forwards signals and reaps orphaned processes.
ENTRYPOINT ["tini", "--", "prerender"]
CMD ["serve"]
