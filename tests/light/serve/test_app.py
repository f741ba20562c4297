"""The HTTP API, in this process, on golden checkpoints, and the languages that a checkpoint translates between."""

import asyncio
import gc
import json
from concurrent.futures import Future
from pathlib import Path
from urllib.parse import urlencode

import pytest

pytest.importorskip("fastapi")

import httpx
from fastapi import HTTPException
from hf_capsule_mt.pipelines.translation import coverage_record
from hf_capsule_mt.serve import Batcher, LanguagePair, Limits, build_app
from hf_capsule_mt.serve.app import _unless_gone
from hf_capsule_mt.serve.languages import describe_languages, language_pairs
from hf_capsule_mt.serve.metrics import Metrics

from hf_capsule_mt import CoverageOptions, Translator
from tests.conftest import GOLDEN
from tests.fixtures.word_for_word import sentences

PAIRS = json.loads((GOLDEN / "capsule_marian" / "expected.json").read_text(encoding="utf-8"))["pairs"]
EN, DE = [pair["source"] for pair in PAIRS], [pair["target"] for pair in PAIRS]
EN_DE, WORDS = LanguagePair("en", "de"), LanguagePair("xa", "xb")


@pytest.fixture(scope="module")
def translators():
    return {
        pair: Translator.from_pretrained(Path(GOLDEN, name), dtype="float32", device="cpu", task=pair.task)
        for pair, name in ((EN_DE, "capsule_marian"), (WORDS, "word_for_word"))
    }


class Client:
    """Calls the application without a network."""

    def __init__(self, batchers, limits):
        self.batchers = batchers
        self.app = build_app(batchers, limits, Metrics())

    def __call__(self, *requests):
        """Send requests at once, each (method, path, settings); return the responses."""

        async def send():
            transport = httpx.ASGITransport(app=self.app, raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url="http://server") as client:
                return await asyncio.gather(*(client.request(m, p, timeout=60, **s) for m, p, s in requests))

        return asyncio.run(send())

    def get(self, path):
        return self(("GET", path, {}))[0]

    def translate(self, **fields):
        return self(("POST", "/translate", {"json": {"source": "en", "target": "de", **fields}}))[0]


@pytest.fixture
def make_client(translators):
    made = []

    def make(limits=None, **settings):
        batchers = {pair: Batcher(translator, **settings) for pair, translator in translators.items()}
        made.extend(batchers.values())
        return Client(batchers, limits or Limits())

    yield make
    for batcher in made:
        batcher.close()


@pytest.fixture
def client(make_client):
    return make_client()


def error_of(response, status):
    assert response.status_code == status, response.text
    assert list(response.json()) == ["error"]
    return response.json()["error"]


def test_a_text_gives_a_text_and_a_list_a_list(client):
    assert client.translate(q=EN[0]).json() == {"translatedText": DE[0]}
    assert client.translate(q=EN).json() == {"translatedText": DE}
    assert client.translate(q=f"{EN[0]} {EN[1]}").json() == {"translatedText": f"{DE[0]} {DE[1]}"}
    assert client.translate(q=["", EN[2], "  "]).json() == {"translatedText": ["", DE[2], ""]}
    assert client.translate(q=[]).json() == {"translatedText": []}


def test_a_form_as_the_clients_of_libretranslate_send_it(client):
    headers = {"content-type": "application/x-www-form-urlencoded"}
    fields = {"q": EN[0], "source": "en", "target": "de", "format": "text", "api_key": ""}
    (response,) = client(("POST", "/translate", {"content": urlencode(fields), "headers": headers}))
    assert response.json() == {"translatedText": DE[0]}
    several = urlencode([("q", EN[0]), ("q", EN[1]), ("source", "en"), ("target", "de"), ("coverage", "true")])
    (response,) = client(("POST", "/translate", {"content": several, "headers": headers}))
    assert response.json()["translatedText"] == DE[:2]
    assert len(response.json()["coverage"]) == 2


def test_coverage_is_the_record_of_the_pipeline(client, translators):
    texts = sentences(4, seed=3)
    expected = translators[WORDS](texts, coverage=CoverageOptions(), batch_size=32)
    fields = {"source": "xa", "target": "xb", "coverage": True}
    answer = client.translate(q=texts, **fields).json()
    assert answer["translatedText"] == [translation.text for translation in expected]
    wanted = json.loads(json.dumps([coverage_record(translation.coverage) for translation in expected]))
    for record, other in zip(answer["coverage"], wanted, strict=True):
        assert record["score"] == pytest.approx(other["score"], abs=1e-4)
        assert [word["untranslated"] for word in record["words"]] == [word["untranslated"] for word in other["words"]]
    assert any(word["untranslated"] for record in answer["coverage"] for word in record["words"])
    assert client.translate(q=texts[0], **fields).json()["coverage"]["words"][0]["word"] == texts[0].split()[0]


def test_requests_at_once_get_their_own_translations(make_client):
    client = make_client(wait_seconds=0.05, max_batch=64)
    words = sentences(10, seed=5)
    alone = [client.translate(q=text, source="xa", target="xb").json() for text in words]
    requests, expected = [], []
    for text, translation, word_text, word_answer in zip(EN, DE, words, alone, strict=True):
        requests.append(("POST", "/translate", {"json": {"q": text, "source": "en", "target": "de"}}))
        requests.append(("POST", "/translate", {"json": {"q": word_text, "source": "xa", "target": "xb"}}))
        expected += [{"translatedText": translation}, word_answer]
    assert [response.json() for response in client(*requests)] == expected
    page = client.get("/metrics").text.splitlines()
    assert 'capsule_mt_texts_total{pair="en-de"} 10' in page
    assert 'capsule_mt_texts_total{pair="xa-xb"} 20' in page


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "`q`: field required"),
        ({"q": 3}, "`q`: must be a text or a list of texts, got '3'"),
        ({"q": ["a", None]}, "`q`: must be a text or a list of texts, got \"['a', None]\""),
        ({"q": "a", "format": "html"}, "`format`: input should be 'text', got 'html'"),
        ({"q": "a", "alternatives": 2}, "`alternatives`: input should be 0, got '2'"),
        ({"q": "a", "target": "fr"}, "`source` and `target`: 'en' to 'fr' is not served; these are: en-de, xa-xb"),
        ({"q": "a", "source": "auto"}, "'auto' to 'de' is not served; languages are not detected; these are:"),
    ],
)
def test_errors_have_the_form_of_libretranslate(client, fields, message):
    assert message in error_of(client.translate(**fields), 400)


def test_no_alternatives_of_a_form(client):
    form = {"q": EN[0], "source": "en", "target": "de", "alternatives": "0"}
    (response,) = client(("POST", "/translate", {"data": form}))
    assert response.json() == {"translatedText": DE[0]}


@pytest.mark.parametrize(
    ("content", "kind", "status", "message"),
    [
        (b"{", "application/json", 400, "cannot be read"),
        (b"[" * 100_000, "application/json", 400, "cannot be read"),
        (b'"text"', "application/json", 400, "the request must be a JSON object, got a str"),
        (b"\xff", "application/json", 400, "cannot be read"),
        (b"q=%ff", "application/x-www-form-urlencoded", 400, "cannot be read"),
        (b"q", "text/plain", 415, "application/json or application/x-www-form-urlencoded, got 'text/plain'"),
        (b"x" * 200_000, "application/json", 413, "more than 125536 bytes"),
    ],
)
def test_requests_that_cannot_be_read(client, content, kind, status, message):
    (response,) = client(("POST", "/translate", {"content": content, "headers": {"content-type": kind}}))
    assert message in error_of(response, status)


def test_limits(make_client):
    client = make_client(Limits(max_characters=30), max_queue=3)
    assert client.translate(q="x" * 30).status_code == 200
    assert "`q` has 31 characters; at most 30" in error_of(client.translate(q="x" * 31), 413)
    assert "`q` has 32 characters; at most 30" in error_of(client.translate(q=["x" * 16] * 2), 413)
    assert "`q` has 4 texts; at most 3" in error_of(client.translate(q=[""] * 4), 413)


def test_a_full_queue_says_when_to_come_back(make_client):
    client = make_client(wait_seconds=0.5, max_batch=64, max_queue=2)
    fields = {"q": [EN[0], EN[1]], "source": "en", "target": "de"}
    responses = client(*[("POST", "/translate", {"json": fields})] * 3)
    assert sorted(response.status_code for response in responses) == [200, 503, 503]
    for response in responses:
        if response.status_code == 503:
            assert error_of(response, 503).startswith("the server is busy; try again in ")
            assert int(response.headers["retry-after"]) >= 1
        else:
            assert response.json() == {"translatedText": DE[:2]}


def test_a_key(make_client):
    client = make_client(Limits(api_key="schlüssel"))
    for wrong in ({}, {"api_key": "x"}):
        assert error_of(client.translate(q=EN[0], **wrong), 403) == "`api_key` is missing or wrong"
    lone = b'{"q": "a", "source": "en", "target": "de", "api_key": "\\ud800"}'  # half a character
    (response,) = client(("POST", "/translate", {"content": lone, "headers": {"content-type": "application/json"}}))
    assert response.status_code == 403
    assert client.translate(q=EN[0], api_key="schlüssel").json() == {"translatedText": DE[0]}


def test_the_other_paths(client):
    assert client.get("/languages").json() == [
        {"code": "en", "name": "English", "targets": ["de"]},
        {"code": "xa", "name": "xa", "targets": ["xb"]},
    ]
    assert "does not detect languages" in error_of(client(("POST", "/detect", {"json": {"q": "a"}}))[0], 501)
    assert error_of(client.get("/nowhere"), 404) == "Not Found"
    assert error_of(client.get("/translate"), 405) == "Method Not Allowed"
    assert "swagger" in client.get("/docs").text
    paths = client.get("/openapi.json").json()["paths"]
    assert set(paths) == {"/translate", "/languages", "/detect", "/health", "/metrics"}
    fields = paths["/translate"]["post"]["requestBody"]["content"]["application/json"]["schema"]["properties"]
    assert {"q", "source", "target", "format", "coverage"} <= set(fields)


def test_health(client):
    assert (client.get("/health").status_code, client.get("/health").json()) == (200, {"status": "ok"})
    client.batchers[WORDS].close()
    assert client.get("/health").status_code == 503
    assert client.get("/health").json() == {"status": "down", "pairs": ["xa-xb"]}
    assert error_of(client.translate(q="a", source="xa", target="xb"), 503) == "the server is stopping"


def test_an_unexpected_error_tells_nothing_of_the_inside(client, monkeypatch):
    def fail(*arguments, **settings):
        raise RuntimeError("secret")

    monkeypatch.setattr(client.batchers[EN_DE], "translator", fail)
    assert error_of(client.translate(q="a"), 500) == "internal error; the server's log has it"
    assert client.get("/health").status_code == 200


def test_metrics_are_in_the_format_of_prometheus(client):
    client.translate(q=EN[:3])
    client.translate(q=7)
    response = client.get("/metrics")
    assert response.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    lines = response.text.splitlines()
    assert 'capsule_mt_requests_total{path="/translate",status="200"} 1' in lines
    assert 'capsule_mt_requests_total{path="/translate",status="400"} 1' in lines
    assert f'capsule_mt_characters_total{{pair="en-de"}} {sum(map(len, EN[:3]))}' in lines
    assert 'capsule_mt_request_seconds_bucket{le="+Inf"} 2' in lines
    assert "capsule_mt_request_seconds_count 2" in lines
    assert 'capsule_mt_queued_texts{pair="en-de"} 0' in lines
    named = {line.split()[2] for line in lines if line.startswith("# TYPE ")}
    for line in lines:
        if not line.startswith("#"):
            name = line.partition("{")[0].split()[0]
            assert any(name == known or name.startswith(f"{known}_") for known in named), line
            float(line.rsplit(" ", 1)[1])


# ---- languages
def folder(path, **files):
    path.mkdir(parents=True)
    for name, content in files.items():
        (path / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")
    return str(path)


def test_a_pair_comes_from_the_command_line_the_recipe_the_tokenizer_or_the_name(tmp_path):
    trained = folder(tmp_path / "a-b-fr-es", train_result={"recipe": {"languages": {"source": "en", "target": "de"}}})
    marian = folder(tmp_path / "marian", tokenizer_config={"source_lang": "fi", "target_lang": "sv"})
    named = folder(tmp_path / "capsule-marian-de-en", train_result={"recipe": None}, tokenizer_config={})
    assert language_pairs(
        [trained, marian, named, "Helsinki-NLP/opus-mt-en-ru", "eng_Latn-fr=x=y", f"cs-pl={trained}"]
    ) == {
        ("en", "de"): trained,
        ("fi", "sv"): marian,
        ("de", "en"): named,
        ("en", "ru"): "Helsinki-NLP/opus-mt-en-ru",
        ("eng_Latn", "fr"): "x=y",
        ("cs", "pl"): trained,
    }


def test_languages_that_are_unknown_or_served_twice():
    with pytest.raises(
        ValueError, match="outputs/gdr: its languages are not known; name them, as in en-de=outputs/gdr"
    ):
        language_pairs(["outputs/gdr"])
    with pytest.raises(ValueError, match="en-de: one checkpoint for each language pair, got one and two"):
        language_pairs(["en-de=one", "en-de=two"])


def test_the_list_is_that_of_libretranslate():
    pairs = [LanguagePair("en", "fr"), LanguagePair("tlh", "en"), LanguagePair("en", "de")]
    assert describe_languages(pairs) == [
        {"code": "en", "name": "English", "targets": ["de", "fr"]},
        {"code": "tlh", "name": "tlh", "targets": ["en"]},
    ]


class Channel:
    """What a request receives while its work waits."""

    def __init__(self, answer):
        self.answer = answer

    async def receive(self):
        if self.answer is None:
            await asyncio.sleep(60)
        if isinstance(self.answer, Exception):
            raise self.answer
        return {"type": self.answer}


def test_nothing_is_translated_for_a_client_that_has_gone(caplog):
    async def ask(channel, waiting, seconds=None):
        await asyncio.wait_for(_unless_gone(channel, asyncio.gather(asyncio.wrap_future(waiting))), seconds)

    for channel, seconds, error in (("http.disconnect", None, HTTPException), (None, 0.01, asyncio.TimeoutError)):
        waiting = Future()
        with pytest.raises(error):
            asyncio.run(ask(Channel(channel), waiting, seconds))
        assert waiting.cancelled()
    gc.collect()
    assert "never retrieved" not in caplog.text


def test_work_goes_on_where_nobody_can_say_that_the_client_has_gone():
    async def ask():
        waiting = Future()
        work = asyncio.ensure_future(
            _unless_gone(Channel(RuntimeError()), asyncio.gather(asyncio.wrap_future(waiting)))
        )
        await asyncio.sleep(0)
        waiting.set_result("done")
        return await work

    assert asyncio.run(ask()) == ["done"]
