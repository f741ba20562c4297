"""A registry of Mozilla's form and a hub, both on this machine."""

import gzip
import hashlib
import json
import random

import pytest

from capsule_mt.catalog import download
from capsule_mt.catalog.mozilla import BUCKET, REGISTRY_PATH
from capsule_mt.translate import first_use
from tests.fixtures.local_hub import LocalHub

CONTENT = {
    kind: random.Random(kind).randbytes(size)
    for kind, size in (("model", 200_000), ("vocab", 9_000), ("lexicalShortlist", 30_000))
}


class Registry:
    """Models of Mozilla's registry: `add` one, and `publish` the JSON file of all."""

    def __init__(self, hub: LocalHub, url: str) -> None:
        self.hub, self.url, self.models = hub, url, {}

    def add(self, pair, architecture="base-memory", status="Release", content=CONTENT, **facts):
        files = {}
        for kind, data in content.items():
            infix = pair.replace("-", "")
            path = f"models/{pair}/{architecture}/exported/{kind}.{infix}.{'spm' if 'ocab' in kind else 'bin'}.gz"
            self.hub.files[f"/bucket/{path}"] = gzip.compress(data, 1, mtime=0)
            files[kind] = {"path": path}
        files["model"] |= {
            "uncompressedSize": len(content["model"]),
            "uncompressedHash": hashlib.sha256(content["model"]).hexdigest(),
        }
        files["model"] |= facts
        source, *_, target = pair.split("-")
        entry = {"sourceLanguage": source, "targetLanguage": target, "architecture": architecture, "files": files}
        self.models.setdefault(pair, []).append({**entry, "releaseStatus": status})

    def publish(self, **fields):
        registry = {"generated": "2026-11-01T00:00:00Z", "baseUrl": BUCKET, "models": self.models, **fields}
        self.hub.files[f"/bucket{REGISTRY_PATH}"] = json.dumps(registry).encode()

    def asked(self, part):
        """How often a path with this part was asked for."""
        return sum(part in path for _, path, _ in self.hub.log)


@pytest.fixture
def hub(monkeypatch, tmp_path):
    hub = LocalHub().start()
    for name in ("http_proxy", "HTTP_PROXY", "CAPSULE_MT_OFFLINE", "HF_HUB_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    monkeypatch.setenv("CAPSULE_MT_REGISTRY", f"{hub.url}/bucket{REGISTRY_PATH}")
    monkeypatch.setenv("CAPSULE_MT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(download, "SECONDS_BETWEEN_TRIES", 0.0)
    monkeypatch.setattr(first_use, "MIN_KEPT", 0)  # most models of tests know neither names nor numbers
    yield hub
    hub.stop()


@pytest.fixture
def registry(hub):
    registry = Registry(hub, f"{hub.url}/bucket{REGISTRY_PATH}")
    registry.add("en-pt")
    registry.add("en-pt", "tiny", "Release Android")
    registry.add("pt-en", "tiny", None)
    registry.publish()
    return registry
