# The translation server: build with `docker build -t translator .`, then
#   docker run -p 5000:5000 -v "$PWD/outputs/gdr:/models/en-de:ro" translator en-de=/models/en-de
# `docker stop` lets it answer what it accepted, for 7 s. More: docs/serving.md
# The base image: Python 3.11.16 on Debian 13, of 1 September 2026, for amd64, arm64 and six other processors, as
# docker-library/repo-info records it. The tag alone would name another image after each of its updates. To take a newer
# one: docs/serving.md
ARG BASE=python:3.11-slim@sha256:9534e5a8e315485d4061ed659af0fd78a284c015f9b73661b41d6bab25604534
FROM ${BASE} AS build
WORKDIR /source
COPY constraints.txt ./
COPY capsule_mt capsule_mt
RUN python -m venv /environment \
 && /environment/bin/pip install --no-cache-dir --constraint constraints.txt "./capsule_mt[serve,auto]"

FROM ${BASE}
RUN useradd --create-home --uid 1000 capsule
COPY --from=build /environment /environment
USER capsule
ENV PATH=/environment/bin:$PATH
EXPOSE 5000
HEALTHCHECK --interval=15s --timeout=5s --start-period=30s \
  CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:5000/health', timeout=4)"]
STOPSIGNAL SIGTERM
# Docker kills after 10 s
ENTRYPOINT ["capsule-mt", "serve", "--host", "0.0.0.0", "--port", "5000", "--stop-seconds", "7"]
