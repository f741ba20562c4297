# The translation server: build with `docker build -t translator .`, then
#   docker run -p 5000:5000 -v "$PWD/outputs/gdr:/models/en-de:ro" translator en-de=/models/en-de
# `docker stop` lets it answer what it accepted. More: docs/serving.md
FROM python:3.11-slim AS build
WORKDIR /source
COPY pyproject.toml hatch_build.py README.md LICENSE constraints.txt capsule_mt.py ./
COPY hf_capsule_mt hf_capsule_mt
COPY model_cards model_cards
# torch without CUDA
RUN python -m venv /environment \
 && /environment/bin/pip install --no-cache-dir --constraint constraints.txt \
    --extra-index-url https://download.pytorch.org/whl/cpu "torch==2.13.0+cpu" \
 && /environment/bin/pip install --no-cache-dir --constraint constraints.txt ".[serve]"

FROM python:3.11-slim
RUN useradd --create-home --uid 1000 capsule
COPY --from=build /environment /environment
USER capsule
ENV PATH=/environment/bin:$PATH HF_HOME=/home/capsule/cache
EXPOSE 5000
HEALTHCHECK --interval=15s --timeout=5s --start-period=120s \
  CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:5000/health', timeout=4)"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["capsule-mt", "serve", "--host", "0.0.0.0", "--port", "5000"]
