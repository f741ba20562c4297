"""The service of Weblate in examples/, on a stand-in for Weblate's base class; it was tried with Weblate 5.14.3."""

import importlib.util
import sys
from contextlib import contextmanager
from types import ModuleType

import pytest

pytest.importorskip("fastapi")

from capsule_mt.catalog.pairs import LanguagePair
from capsule_mt.serve.answers import RequestLimits
from capsule_mt.serve.batching import Batcher
from tests.conftest import GOLDEN
from tests.light.serve.fakes import Checked, Upper
from tests.light.serve.test_app import EN_DE, Client

EXAMPLE = GOLDEN.parents[1] / "examples" / "weblate_capsule_mt.py"


class LibreTranslateTranslation:
    """The part of Weblate's class that the example uses."""

    max_score = 89
    api_base_url = "http://server"

    def __init__(self, client):
        self.client, self.settings = client, {"url": self.api_base_url, "key": ""}

    @property
    def supported_languages(self):
        return set(self.download_languages())

    def get_api_url(self, path):
        return f"/{path}"

    def request(self, method, path, **settings):
        (response,) = self.client((method.upper(), path, settings))
        response.raise_for_status()
        return response


@pytest.fixture
def service(monkeypatch):
    """Return the example's class."""
    modules = {
        "weblate": {},
        "weblate.machinery": {},
        "weblate.machinery.libretranslate": {"LibreTranslateTranslation": LibreTranslateTranslation},
        "django": {},
        "django.core": {},
        "django.core.exceptions": {"ValidationError": ValueError},
    }
    for name, values in modules.items():
        module = ModuleType(name)
        vars(module).update(values)
        monkeypatch.setitem(sys.modules, name, module)
    spec = importlib.util.spec_from_file_location("weblate_capsule_mt", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.CapsuleTranslation


@contextmanager
def client_of(pair, translator):
    batcher = Batcher(translator)
    client = Client({pair: batcher}, RequestLimits(), None)
    try:
        yield client
    finally:
        client.readers.close()
        batcher.close()


def test_a_suggestion_with_problems_has_less_quality(service):
    with client_of(EN_DE, Checked()) as client:
        suggestions = service(client).download_multiple_translations(
            "en", "de", [("a fox", None), ("a quick fox", None), ("has 1 q5000", None)]
        )
    quality_of = {text: (choice["text"], choice["quality"]) for text, (choice,) in suggestions.items()}
    assert quality_of == {"a fox": ("A FOX", 89), "a quick fox": ("A FOX", 70), "has 1 q5000": ("HAS 1 ", 70)}


def test_a_suggestion_below_the_alarm_is_in_doubt(service):
    with client_of(EN_DE, Checked()) as client:
        incomplete = {"level": "probable", "message": "Probably incomplete: a fox", "spans": []}  # no word is marked
        assert service(client).quality_of({"problems": [incomplete]}) == 70
        changed = {"level": "fault", "message": "The month May is missing in the translation.", "spans": []}
        assert service(client).quality_of({"problems": [changed, incomplete]}) == 40


def test_only_served_pairs_are_offered(service):
    with client_of(LanguagePair("pt", "zh_hant"), Upper()) as client:
        machinery = service(client)
        machinery.validate_settings()
        assert machinery.is_supported("pt", "zh-Hant")
        assert not machinery.is_supported("zh-Hant", "pt")
