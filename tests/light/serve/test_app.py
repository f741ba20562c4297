"""The HTTP API, in this process, and the languages that a checkpoint translates between."""

import asyncio
import contextlib
import copy
import json
import re
import shlex
import shutil
import threading
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("fastapi")

import httpx

from capsule_mt import CoverageOptions, Translator, __version__, load
from capsule_mt.catalog.entries import CatalogError, languages_and_folder
from capsule_mt.catalog.pairs import LanguagePair, language_pairs
from capsule_mt.commands.serve import ModelList, command_parser, pivots_of
from capsule_mt.files.lines import coverage_record
from capsule_mt.serve.answers import MAX_SCORE_GAP, RequestLimits
from capsule_mt.serve.app import PAGE, PAGE_FILES, build_app
from capsule_mt.serve.batching import Batcher, RequestSettings
from capsule_mt.serve.clients import WRONG_KEYS_A_MINUTE, Keys, Rates, client_of
from capsule_mt.serve.files import MAX_FILES, Files, Readers
from capsule_mt.serve.metrics import Metrics
from capsule_mt.serve.requests import ANSWER_EXAMPLES
from capsule_mt.serve.running import batchers_of
from capsule_mt.text.detecting import Detected
from tests.conftest import GOLDEN
from tests.light.serve.fakes import Upper, until

MODEL = GOLDEN / "capsule_marian"
EN_DE, DE_EN, WORDS = LanguagePair("en", "de"), LanguagePair("de", "en"), LanguagePair("xa", "xb")


class EnglishWithA:
    """Detects languages by one letter."""

    def rank(self, text):
        german = Detected("de", 0.75), Detected("en", 0.25)
        return [Detected("en", 0.875), Detected("de", 0.125)] if "a" in text else list(german)


class Client:
    """Calls the application without a network."""

    def __init__(self, batchers, limits, detector):
        self.batchers = batchers
        self.readers, self.address = Readers(), "127.0.0.1"
        self.metrics = Metrics()
        self.app = build_app(batchers, limits, self.metrics, detector, self.readers)

    def with_address(self, address):
        """Return a client of the same application at another address."""
        client = copy.copy(self)
        client.address = address
        return client

    def __call__(self, *requests):
        """Send requests at once, each (method, path, settings); return the responses."""

        async def send():
            transport = httpx.ASGITransport(app=self.app, raise_app_exceptions=False, client=(self.address, 1234))
            async with httpx.AsyncClient(transport=transport, base_url="http://server") as client:
                return await asyncio.gather(*(client.request(m, p, timeout=60, **s) for m, p, s in requests))

        return asyncio.run(send())

    def get(self, path, **headers):
        return self(("GET", path, {"headers": headers}))[0]

    def post(self, path, **fields):
        return self(("POST", path, {"json": {"source": "en", "target": "de", **fields}}))[0]

    def translate(self, **fields):
        return self.post("/translate", **fields)


@pytest.fixture
def make_client():
    clients = []

    def make(limits=None, translators=None, detector=None, **settings):
        translators = translators or {EN_DE: Upper(), WORDS: Upper()}
        batchers = {pair: Batcher(translator, **settings) for pair, translator in translators.items()}
        clients.extend(batchers.values())
        client = Client(batchers, limits or RequestLimits(), detector)
        clients.append(client.readers)
        return client

    yield make
    for batcher_or_readers in clients:
        batcher_or_readers.close()


@pytest.fixture
def client(make_client):
    return make_client()


def error_of(response, status):
    assert response.status_code == status, response.text
    assert list(response.json()) == ["error"]
    return response.json()["error"]


def test_a_checkpoint(make_client):
    """The translations of the golden checkpoint, and the record of their coverage."""
    translator = Translator.from_pretrained(GOLDEN / "capsule_marian")
    client = make_client(translators={EN_DE: translator})
    pairs = json.loads((GOLDEN / "capsule_marian" / "expected.json").read_text(encoding="utf-8"))["pairs"]
    texts = [pair["source"] for pair in pairs]
    answer = client.translate(q=texts, coverage=True).json()
    assert answer["translatedText"] == [pair["target"] for pair in pairs]
    coverages = [translation.coverage for translation in translator(texts, coverage=CoverageOptions(), batch_size=32)]
    assert [record["words"] for record in answer["coverage"]] == [
        coverage_record(coverage)["words"] for coverage in coverages
    ]
    short = texts[0].split()[0]
    checked = client.post("/cover", q=texts[0], translation=short).json()
    assert not checked["coverage"]["problems"]  # single words of a given translation are marked only if requested
    checked = client.post("/cover", q=texts[0], translation=short, marks="likely").json()
    (expected,) = translator.cover([texts[0]], [short], coverage=CoverageOptions(marks="likely"))
    assert checked["coverage"].pop("problems")
    assert checked == json.loads(json.dumps({"coverage": coverage_record(expected), "marks": "unverified"}))


# the requests of LibreTranslate's documentation and of its clients, in every way that they are sent
ADVICE = "send less at once, or start the server with a higher --max-characters"
FROM_EN = {"source": "en", "target": "de"}
REQUESTS = [
    ({"q": "a", **FROM_EN}, {"translatedText": "A"}),
    ({"q": "a", **FROM_EN, "format": "text", "api_key": ""}, {"translatedText": "A"}),
    (
        {"q": "a", **FROM_EN, "format": "text", "alternatives": 0, "secret": "", "apiKey": "", "x": 1},
        {"translatedText": "A"},
    ),
    ({"q": "a", **FROM_EN, "alternatives": 3}, {"translatedText": "A", "alternatives": ["A'", "A''", "A'''"]}),
    (
        {"q": "a", "source": "auto", "target": "de"},
        {"translatedText": "A", "detectedLanguage": {"confidence": 87.5, "language": "en"}},
    ),
    ({"q": '<p class="x">a</p>', **FROM_EN, "format": "html"}, {"translatedText": '<p class="x">A</p>'}),
    ({"q": "o", "source": "de", "target": "de"}, {"translatedText": "o"}),
]
LISTS = [
    ({"q": ["a", "b"], **FROM_EN}, {"translatedText": ["A", "B"]}),
    (
        {"q": ["a", "b" * 41], "source": "auto", "target": "de", "alternatives": 1},
        {
            "translatedText": ["A", "b" * 41],
            "alternatives": [["A'"], []],
            "detectedLanguage": [{"confidence": 87.5, "language": "en"}, {"confidence": 75.0, "language": "de"}],
        },
    ),
]
WAYS = {
    "json": lambda fields: {"json": fields},
    "form": lambda fields: {"data": fields},
    "query": lambda fields: {"params": fields},
    "parts": lambda fields: {"files": [(name, (None, str(value))) for name, value in fields.items()]},
}


@pytest.mark.parametrize("way", WAYS)
def test_requests_as_the_clients_of_libretranslate_send_them(make_client, way):
    client = make_client(detector=EnglishWithA())
    for fields, answer in REQUESTS + (LISTS if way in ("json", "form", "query") else []):
        (response,) = client(("POST", "/translate", WAYS[way](fields)))
        assert (response.status_code, response.json()) == (200, answer), fields


def test_a_language_is_detected(make_client):
    client = make_client(detector=EnglishWithA())
    english = [{"confidence": 87.5, "language": "en"}, {"confidence": 12.5, "language": "de"}]
    assert client.post("/detect", q="a").json() == english
    assert client.get("/frontend/settings").json()["language"] == {
        "source": {"code": "auto", "name": "Auto Detect"},
        "target": {"code": "de", "name": "German"},
    }
    assert error_of(client.post("/detect"), 400) == "Invalid request: missing q parameter"


def test_the_page_offers_verified_marks(make_client):
    translators = {EN_DE: Upper(verifies=True), WORDS: Upper()}
    settings = make_client(translators=translators).get("/frontend/settings").json()
    assert settings["verified"] == [str(EN_DE)]
    assert settings["precision"] == {}
    assert make_client().get("/frontend/settings").json()["verified"] == []


def test_a_file(make_client):
    client = make_client()
    form = {"data": FROM_EN, "files": {"file": ("../a.txt", "a;b".encode("utf-8-sig"))}}
    (response,) = client(("POST", "/translate_file", form))
    url = response.json()["translatedFileUrl"]
    assert re.fullmatch(r"http://server/download_file/[\w-]{20,}\.a\.de\.txt", url)
    assert client.get(url.removeprefix("http://server")).text == "A;B"
    assert client.get("/download_file/a.txt").status_code == 404
    subtitles = "1\n00:00:01,000 --> 00:00:02,000\na\n"
    (response,) = client(("POST", "/translate_file", {**form, "files": {"file": ("a.srt", subtitles)}}))
    url = response.json()["translatedFileUrl"]
    assert client.get(url.removeprefix("http://server")).text == subtitles.replace("\na", "\nA")
    for name, content, message in (
        ("a.exe", b"a", "file format not supported, only .txt, .html"),
        ("a.csv", b"a,b", "file format not supported, only .txt, .html"),
        (
            "a.pdf",
            b"%PDF",
            "a.pdf: is a PDF, not text: convert it by `pdftotext FILE.pdf FILE.txt`, or save it as .docx",
        ),
        ("a.jpg", b"a", "a.jpg: is an image, not text: a program for text recognition reads its text"),
        ("a.txt", b"\xff", "a.txt"),
        ("a.txt", b"%PDF-1.7\n", "a.txt: is a PDF, not text: convert it by `pdftotext FILE.pdf FILE.txt`"),
        ("a.srt", b"a", "a.srt"),
        ("a.html", b"<p>a<![x]>b", "a.html: not html that can be read"),
        ("b" * 200 + ".srt", b"a", f"Invalid request: {'b' * 96}.srt: no line has times"),
        ("a.txt", b"a" * 5001, "request (5001) exceeds text limit (5000)"),
    ):
        (response,) = client(("POST", "/translate_file", {**form, "files": {"file": (name, content)}}))
        assert message in error_of(response, 400)
    assert "missing file parameter" in error_of(client(("POST", "/translate_file", {"data": FROM_EN}))[0], 400)


def test_what_of_a_file_stays_in_the_source_language_is_noted(client):
    messages = {"open": "a", "items": "b {n, plural, one {# file}}", "again": "b {n, plural, one {# file}}"}
    content = json.dumps(messages, indent=1)
    form = {"data": FROM_EN, "files": {"file": ("app_en.arb", content)}}
    answer = client(("POST", "/translate_file", form))[0].json()
    reason = "{n, plural, ...} stays as it is: the branch `other` is missing; translate it by hand"
    assert answer["notes"] == [{"location": f"line {line}", "note": reason} for line in (3, 4)]
    written = client.get(answer["translatedFileUrl"].removeprefix("http://server")).json()
    assert (written["open"], "{n, plural, one {# file}}" in written["items"]) == ("A", True)
    form["files"] = {"file": ("app_en.arb", json.dumps({"open": "a"}))}
    assert "notes" not in client(("POST", "/translate_file", form))[0].json()


def test_the_link_of_a_file_whose_name_has_signs_of_links(client):
    form = {"data": FROM_EN, "files": {"file": ("100 % of a#1?.txt", b"a")}}
    (response,) = client(("POST", "/translate_file", form))
    url = response.json()["translatedFileUrl"]
    assert url.endswith(".100%20%25%20of%20a%231%3F.de.txt")
    answer = client.get(url.removeprefix("http://server"))
    assert answer.text == "A"
    assert answer.headers["content-disposition"] == "attachment; filename*=UTF-8''100%20%25%20of%20a%231%3F.de.txt"


@pytest.mark.parametrize(
    ("served", "codes"),
    [
        ("es", ["es-419", "es_419"]),
        ("pt", ["pt", "PT", "pt-BR", "pt_br", "pb", "por_Latn"]),
        ("por_Latn", ["por_Latn", "pt", "pt-BR", "pb"]),
        ("zh_hant", ["zh_hant", "zh-TW", "zh-Hant", "zh-Hant-TW", "zt", "zh"]),
    ],
)
def test_codes_of_languages_with_regions(make_client, served, codes):
    client = make_client(translators={LanguagePair("en", served): Upper()})
    for code in codes:
        assert client.translate(q="a", target=code).json() == {"translatedText": "A"}, code
    assert "xx is not supported" in error_of(client.translate(q="a", target="xx"), 400)


def test_a_script_is_not_dropped(make_client):
    client = make_client(translators={LanguagePair("en", "zh"): Upper(), LanguagePair("en", "nb"): Upper()})
    assert "zh-TW is not supported" in error_of(client.translate(q="a", target="zh-TW"), 400)
    assert client.translate(q="a", target="zh-Hans").json() == {"translatedText": "A"}


def test_alternatives_leave_the_translation_as_it_is(make_client):
    translator = Translator.from_pretrained(GOLDEN / "capsule_marian")
    client = make_client(translators={EN_DE: translator})
    pairs = json.loads((GOLDEN / "capsule_marian" / "expected.json").read_text(encoding="utf-8"))["pairs"]
    texts = [pair["source"] for pair in pairs]
    answer = client.translate(q=texts, alternatives=7).json()
    assert answer["translatedText"] == [pair["target"] for pair in pairs]
    numbers = [len(alternatives) for alternatives in answer["alternatives"]]
    for text, best, alternatives in zip(texts, answer["translatedText"], answer["alternatives"], strict=True):
        ranked = translator(text, num_beams=8, num_return_sequences=8)
        top = max(hypothesis.score for hypothesis in ranked)
        assert alternatives == list(
            dict.fromkeys(
                hypothesis.text
                for hypothesis in ranked
                if hypothesis.text != best and hypothesis.score >= top - MAX_SCORE_GAP
            )
        )
    assert min(numbers) < 7  # the golden model is sure of itself
    assert max(numbers) > 0
    assert f'capsule_mt_texts_total{{pair="en-de"}} {len(texts)}\n' in client.get("/metrics").text


def test_pairs_through_english_without_a_model(make_client):
    halves = {DE_EN: GOLDEN / "capsule_marian", LanguagePair("en", "pt"): GOLDEN / "capsule_marian"}
    first, second = (Translator.from_pretrained(folder) for folder in halves.values())
    translators = dict(zip(halves, (first, second), strict=True)) | {EN_DE: second}
    pivots = pivots_of(translators)
    assert list(pivots) == [LanguagePair("de", "pt")]
    text = "The old man buys a red hat."
    assert pivots[LanguagePair("de", "pt")](text).text == second(first(text).text).text
    check = make_client(translators=pivots).post("/cover", q="a", translation="b", source="de", target="pt")
    assert error_of(check, 400) == "/cover needs one model, but this pair goes through English with two"


def test_the_examples_of_the_description_work(make_client):
    client = make_client(detector=EnglishWithA())
    paths = client.get("/spec").json()["paths"]
    for path, example in ANSWER_EXAMPLES.items():
        method, operation = next(iter(paths[path].items()))
        assert operation["responses"]["200"]["content"]["application/json"]["example"] == example
        if path == "/translate_file":
            continue  # a file has no form in JSON
        body = operation["requestBody"]["content"]["application/json"]["example"] if method == "post" else {}
        answer = client((method, path, {"json": body} if body else {}))[0].json()
        assert shape_of(answer) == shape_of(example), path


def shape_of(value):
    """Return the keys and types of plain values; a list has the shape of its first item."""
    if isinstance(value, dict):
        return {key: shape_of(item) for key, item in value.items()}
    return [shape_of(item) for item in value[:1]] if isinstance(value, list) else type(value)


def test_coverage_and_more_beams(client):
    answer = client.translate(q="a quick fox", coverage=True).json()
    assert answer["translatedText"] == "A FOX"
    assert [word["word"] for word in answer["coverage"]["words"] if word["untranslated"]] == ["quick"]
    again = client.translate(q="a quick fox", coverage=True, num_beams=8).json()
    assert (again["translatedText"], again["coverage"]["score"]) == ("A QUICK FOX", 1.0)


def test_words_that_belong_together(client):
    answer = client.translate(q=["a quick fox", ""], alignment=True).json()
    assert (answer["translatedText"], answer["alignment"]) == (["A FOX", ""], [[[0, 0], [2, 1]], []])
    assert "alignment" not in client.translate(q="a").json()
    assert "`alignment` is for texts" in error_of(client.translate(q="a", format="html", alignment=True), 400)


def test_edits_of_a_text(client):
    answer = client.translate(q=["a quick fox", ""], edits=True).json()
    assert answer["edits"] == [[{"row": "q", "start": 2, "end": 3, "model": "", "back": "q"}], []]
    assert "edits" not in client.translate(q="a").json()
    assert "`edits` is for texts" in error_of(client.translate(q="a", format="html", edits=True), 400)


def test_words_of_a_given_translation_that_belong_together(client):
    answer = client.post("/cover", q=["a quick fox", ""], translation=["FOX, a", ""], alignment=True).json()
    assert answer["alignment"] == [[[0, 1]], []]
    assert client.post("/cover", q="a fox", translation="fox", alignment="true").json()["alignment"] == [[1, 0]]
    assert "`alignment`" in error_of(client.post("/cover", q="a", translation="a", alignment="perhaps"), 400)
    assert client.post("/cover", q="a", translation="a", format="text").status_code == 200
    expected = "html format is not supported; these are: text"
    assert expected in error_of(client.post("/cover", q="a", translation="a", format="html"), 400)
    expected = "`num_beams` is a search option of /translate, and this path does not take it"
    assert expected in error_of(client.post("/cover", q="a", translation="a", num_beams=2), 400)


def test_an_answer_says_whether_the_marks_that_were_asked_for_are_verified(make_client):
    client = make_client(translators={EN_DE: Upper(), WORDS: Upper(verifies=True)})
    in_words = {"source": "xa", "target": "xb"}
    for path, fields in (("/translate", {"coverage": True}), ("/cover", {"translation": "A"})):
        assert client.post(path, q="a", marks="sure", **fields).json()["marks"] == "unverified"
        assert client.post(path, q="a", marks="sure", **fields, **in_words).json()["marks"] == "verified"
        assert "marks" not in client.post(path, q="a", **fields).json()
    assert client.translate(q=["a", "b"], coverage=True, marks="all").json()["marks"] == ["unverified"] * 2
    assert error_of(client.translate(q="a", marks="sure"), 400).startswith(
        "`marks` chooses among what `coverage` marks"
    )


def test_problems_in_words(client):
    coverage = client.post("/cover", q=["a b"], translation=["A"]).json()["coverage"][0]
    spans = [{"side": "source", "start": 2, "end": 3}]
    assert coverage["problems"] == [
        {"level": "hint", "reason": "perhaps_left_out", "message": "Perhaps left out, unverified: b", "spans": spans}
    ]
    coverage = client.translate(q="a quick fox", coverage=True).json()["coverage"]
    assert [problem["message"] for problem in coverage["problems"]] == ["Perhaps left out, unverified: quick"]


def test_a_given_translation_is_checked(client):
    answer = client.post("/cover", q=["a b", "c"], translation=["A", "C"]).json()
    assert [record["score"] for record in answer["coverage"]] == [0.5, 1.0]
    assert client.post("/cover", q="a b", translation="B").json()["coverage"]["words"][0]["untranslated"]
    assert "alignment" not in answer
    assert "missing translation parameter" in error_of(client.post("/cover", q="a"), 400)
    for q, translation in (("a", ["A"]), (["a"], "A"), (["a", "b"], ["A"])):
        assert "must be one text or a list as `q` is, got" in error_of(
            client.post("/cover", q=q, translation=translation), 400
        )


def test_a_language_may_have_a_region(client):
    expected = client.translate(q="a b").json()
    for source, target in (("en-GB", "de_AT"), ("en-gb", "DE-at")):
        assert client.translate(q="a b", source=source, target=target).json() == expected
    assert "fr-FR is not supported" in error_of(client.translate(q="a", target="fr-FR"), 400)


def test_requests_at_once_get_their_own_translations(make_client):
    client = make_client(wait_seconds=0.05, max_batch=64)
    requests = [
        ("POST", "/translate", {"json": {"q": f"text {number}", "source": source, "target": target}})
        for number in range(10)
        for source, target in (EN_DE, WORDS)
    ]
    texts = [response.json()["translatedText"] for response in client(*requests)]
    assert texts == [f"TEXT {number}" for number in range(10) for _ in range(2)]
    page = client.get("/metrics").text.splitlines()
    assert 'capsule_mt_texts_total{pair="en-de"} 10' in page
    assert 'capsule_mt_texts_total{pair="xa-xb"} 10' in page


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "Invalid request: missing q parameter"),
        ({"text": "a"}, "unknown field 'text' (did you mean `q`?); the fields are api_key, q, source, target"),
        ({"q": "a", "source": None, "from": "en"}, "unknown field 'from' (did you mean `source`?)"),
        ({"q": "a", "target": "", "to": "de"}, "unknown field 'to' (did you mean `target`?)"),
        ({"q": ["a", None]}, "`q`: must be a text or a list of texts, got ['a', None]"),
        ({"q": 5}, "`q`: must be a text or a list of texts, got 5"),
        ({"q": "a", "num_beams": 0}, "`num_beams`: input should be greater than or equal to 1, got 0"),
        ({"q": ["a", "<p>a<![x]>b"], "format": "html"}, "text 1: not html that can be read and written"),
        ({"q": "a", "format": "html", "coverage": True}, "`coverage` is for texts, not for `format` html"),
        ({"q": "a", "format": "pdf"}, "pdf format is not supported; these are: text, html"),
        ({"q": "a", "coverge": False}, "unknown field 'coverge' (did you mean `coverage`?); the fields are"),
        (
            {"q": "a", "beam": None},
            "unknown field 'beam' (did you mean `num_beams`?); the fields are api_key, q, source",
        ),
        ({"q": "a", "target": "fr"}, "fr is not supported; these are: de, en, xa, xb"),
        ({"q": "a", "beams": 2}, "unknown field 'beams' (did you mean `num_beams`?)"),
        ({"q": "a", "no_repeat_ngram": None}, "(did you mean `no_repeat_ngram_size`?)"),
        ({"q": "a", "length_penalty": "x"}, "`length_penalty`: input should be a valid number"),
        ({"q": "a", "early_stopping": True}, "`early_stopping` is a search option that the server does not take"),
        ({"q": "a", "num_beams": 9}, "`num_beams`: at most 8 are accepted, got 9"),
        ({"q": ["x" * 2500, "x" * 2501]}, f"Invalid request: request (5001) exceeds text limit (5000): {ADVICE}"),
    ],
)
def test_errors_have_the_form_of_libretranslate(client, fields, message):
    assert message in error_of(client.translate(**fields), 400)


@pytest.mark.parametrize(
    ("content", "kind", "status", "message"),
    [
        (b"{", "application/json", 400, "cannot be read"),
        (b'"text"', "application/json", 400, "Invalid JSON format: the request must be an object, got a str"),
        (b' {"q": "a"}', "application/x-www-form-urlencoded", 400, "looks like JSON, but its content type is applic"),
        (b"--x", "multipart/form-data", 400, "cannot be read: Missing boundary"),
        (b"q", "text/plain", 415, "application/x-www-form-urlencoded or multipart/form-data, got 'text/plain'"),
        (b"x" * 200_000, "application/json", 413, f"more than 125536 bytes: {ADVICE}"),
    ],
)
def test_requests_that_cannot_be_read(client, content, kind, status, message):
    (response,) = client(("POST", "/translate", {"content": content, "headers": {"content-type": kind}}))
    assert message in error_of(response, status)


def test_a_text_that_fails_is_named_by_its_place(make_client):
    texts = ["b" * 41, "a broken one" + "b" * 41]  # the first one is of the target's language
    error = error_of(make_client(detector=EnglishWithA()).translate(q=texts, source="auto"), 400)
    assert error == "text 1 cannot be translated: ValueError: a broken text"


def test_a_full_queue_says_when_to_come_back(make_client):
    client = make_client(wait_seconds=600, max_batch=64, max_queue=3)
    fields = {"q": ["a", "b"], "source": "en", "target": "de"}

    def let_translate():
        until(lambda: 'requests_total{path="/translate",status="503"} 2' in client.metrics.page({}))
        client.batchers[EN_DE].close()  # translates what waits

    thread = threading.Thread(target=let_translate)
    thread.start()
    responses = client(*[("POST", "/translate", {"json": fields})] * 3)
    thread.join()
    assert sorted(response.status_code for response in responses) == [200, 503, 503]
    for response in responses:
        if response.status_code == 503:
            assert error_of(response, 503).startswith("the server is busy; try again in ")
            assert int(response.headers["retry-after"]) >= 1
        else:
            assert response.json() == {"translatedText": ["A", "B"]}


def test_a_translation_has_some_time(make_client, monkeypatch):
    """The time is over once the first sentence is done, however long that takes here."""
    client = make_client(RequestLimits(request_seconds=0.3))
    batcher, wait_for, orders = client.batchers[EN_DE], asyncio.wait_for, []
    submit = batcher.submit
    monkeypatch.setattr(
        batcher, "submit", lambda *texts, **options: orders.append(submit(*texts, **options)) or orders[0]
    )

    async def wait_until_first_is_done(work, seconds):
        while seconds == 0.3 and (not orders or orders[0].progress().startswith("0 of 2")):
            await asyncio.sleep(0.01)
        return await wait_for(work, seconds)

    monkeypatch.setattr("capsule_mt.serve.answers.asyncio.wait_for", wait_until_first_is_done)
    expected = "the translation took longer than 0.3 s: 1 of 2 sentences, 1 of 22 tokens done"
    assert error_of(client.translate(q="a;slow" + " b" * 20), 503) == expected


def test_the_time_includes_what_it_takes_to_queue(make_client, monkeypatch):
    client = make_client(RequestLimits(request_seconds=0.1))
    batcher, submit, free, orders = client.batchers[EN_DE], client.batchers[EN_DE].submit, threading.Event(), []

    def submit_later(*texts, **options):
        free.wait(10)
        orders.append(submit(*texts, **options))
        return orders[-1]

    monkeypatch.setattr(batcher, "submit", submit_later)
    assert error_of(client.translate(q="slow"), 503) == "the translation took longer than 0.1 s: 0 of 1 done"
    free.set()
    until(lambda: orders and orders[0].results[0].done())
    assert orders[0].results[0].cancelled()


def test_a_key(make_client, monkeypatch, caplog, tmp_path):
    monkeypatch.setattr("capsule_mt.serve.clients.WRONG_KEY_SECONDS", 0.1)
    (tmp_path / "keys").write_text("schlüssel\n", encoding="utf-8")
    client = make_client(RequestLimits(keys=Keys.load(tmp_path / "keys")))
    assert error_of(client.translate(q="a"), 403) == "Please contact the server operator to get an API key"
    began = time.monotonic()
    assert error_of(client.translate(q="a", api_key="x"), 403) == "Invalid API key"
    assert time.monotonic() - began >= 0.1
    assert "a wrong API key from 127.0.0.1" in caplog.text
    for path in ("/metrics", "/docs", "/openapi.json", "/spec"):
        assert client.get(path).status_code == 403
        assert client.get(f"{path}?api_key=schlüssel").status_code == 200
    assert client.get("/languages").status_code == 200
    lone = b'{"q": "a", "source": "en", "target": "de", "api_key": "\\ud800"}'  # half a character
    (response,) = client(("POST", "/translate", {"content": lone, "headers": {"content-type": "application/json"}}))
    assert response.status_code == 403
    assert client.translate(q="a", api_key="schlüssel").json() == {"translatedText": "A"}


def test_a_client_cannot_guess_keys_at_once(make_client, monkeypatch, tmp_path):
    monkeypatch.setattr("capsule_mt.serve.clients.WRONG_KEY_SECONDS", 0.0)
    # or a slow machine regains guesses in the meantime
    monkeypatch.setattr("capsule_mt.serve.clients.time", SimpleNamespace(monotonic=lambda: 0.0))
    (tmp_path / "keys").write_text("key\n")
    client = make_client(RequestLimits(keys=Keys.load(tmp_path / "keys")))
    guesses = [
        ("POST", "/translate", {"json": {"q": "a", **FROM_EN, "api_key": f"x{number}"}}) for number in range(12)
    ]
    guesses += [("GET", f"/metrics?api_key=x{number}", {}) for number in range(8)]
    statuses = Counter(response.status_code for response in client(*guesses))
    assert statuses == {403: WRONG_KEYS_A_MINUTE, 429: len(guesses) - WRONG_KEYS_A_MINUTE}
    refused = client.translate(q="a", api_key="key")  # or the answer would tell a right guess from a wrong one
    assert error_of(refused, 429) == "Too many wrong API keys"
    assert 0 < int(refused.headers["retry-after"]) <= 7
    assert client.with_address("192.0.2.1").translate(q="a", api_key="key").json() == {"translatedText": "A"}


@pytest.mark.parametrize(
    ("address", "client"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::9", "2001:db8:1:2::/64"),
        ("2001:db8:1:3::9", "2001:db8:1:3::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("", ""),
    ],
)
def test_a_client_has_a_network_of_ipv6(address, client):
    assert client_of(address) == client


def test_addresses_of_one_network_share_a_limit(make_client):
    client = make_client(RequestLimits(requests_a_minute=1))
    statuses = [
        client.with_address(address).translate(q="a").status_code
        for address in ("2001:db8::1", "2001:db8::2", "2001:db8:0:1::1")
    ]
    assert statuses == [200, 429, 200]


def test_a_short_text_of_a_list_counts_as_16_characters(make_client):
    client = make_client(RequestLimits(max_characters=64))
    assert client.translate(q=["a"] * 4).json() == {"translatedText": ["A"] * 4}
    assert "request (80) exceeds text limit (64)" in error_of(client.translate(q=["a"] * 5), 400)
    assert "request (80) exceeds text limit (64)" in error_of(client.post("/detect", q=["a"] * 5), 400)
    assert client.translate(q="a" * 64).status_code == 200
    cues = "".join(f"{n}\n00:00:0{n},000 --> 00:00:0{n},900\na.\n\n" for n in range(1, 6))
    (response,) = client(("POST", "/translate_file", {"data": FROM_EN, "files": {"file": ("a.srt", cues)}}))
    assert "request (80) exceeds text limit (64)" in error_of(response, 400)


def test_a_form_has_a_limit_of_fields(client):
    form = {"content": "q=a&" * 1001, "headers": {"content-type": "application/x-www-form-urlencoded"}}
    assert "the request cannot be read" in error_of(client(("POST", "/translate", form))[0], 400)


def test_a_request_has_a_limit_of_fields(client):
    """To look for misspelt names among many would hold up the others."""
    fields = {f"x{number}": 1 for number in range(101)}
    assert error_of(client(("POST", "/translate", {"json": fields}))[0], 400) == (
        "the request has 101 fields; at most 100 are read"
    )


def test_health_and_metrics_wait_for_no_model(client):
    """They are answered while threads hold every lock of the batchers."""
    locks = [lock for batcher in client.batchers.values() for lock in (batcher._changed, batcher._tokenizing)]
    holding, release = threading.Event(), threading.Event()

    def hold():
        with contextlib.ExitStack() as stack:
            for lock in locks:
                stack.enter_context(lock)
            holding.set()
            release.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    holding.wait()
    try:
        for path in ("/health", "/metrics"):
            assert client.get(path).status_code == 200
    finally:
        release.set()
        thread.join()


def test_others_are_answered_while_a_language_is_detected(make_client):
    answered = threading.Event()

    class Slow(EnglishWithA):
        def rank(self, text):
            assert answered.wait(120)
            return super().rank(text)

    client = make_client(detector=Slow())

    async def ask():
        transport = httpx.ASGITransport(app=client.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://server") as session:
            fields = {"q": ["a" * 50] * 3, "source": "auto", "target": "de"}
            translation = asyncio.ensure_future(session.post("/translate", json=fields))
            await asyncio.sleep(0.1)
            assert (await session.get("/health")).status_code == 200
            assert not translation.done()
            answered.set()
            return (await translation).json()["translatedText"]

    assert asyncio.run(ask()) == ["A" * 50] * 3


def test_a_client_loses_its_own_oldest_file(monkeypatch):
    monkeypatch.setattr("capsule_mt.serve.files.MAX_STORED_BYTES", 100)
    files = Files()
    first = files.store("a", "name", b"x")
    other_key = files.store("b", "name", b"x")
    for _ in range(MAX_FILES - 1):
        files.store("a", "name", b"x")
    assert files.get(first) == b"x"
    files.store("a", "name", b"x")
    assert (files.get(first), files.get(other_key)) == (None, b"x")
    large = files.store("c", "name", b"x" * 60)
    assert files.get(large) is not None
    larger = files.store("b", "name", b"x" * 50)  # the client that has most gives way
    assert (files.get(large), files.get(other_key), files.get(larger)) == (None, b"x", b"x" * 50)


def test_keys_with_limits_of_their_own(make_client, tmp_path):
    file = tmp_path / "keys"
    file.write_text("fast\n# a key, and its requests a minute\nslow 1  # Bob\nthree 3\n", encoding="utf-8-sig")
    client = make_client(RequestLimits(keys=Keys.load(file), requests_a_minute=2))
    for key, accepted in (("fast", 2), ("slow", 1), ("three", 3)):
        for _ in range(accepted):
            assert client.translate(q="a", api_key=key).status_code == 200
        refused = client.translate(q="a", api_key=key)
        assert error_of(refused, 429) == f"Slowdown: {accepted} per 1 minute"
        assert 0 < int(refused.headers["retry-after"]) <= 61


@pytest.mark.parametrize("content", ["a b", "a\na"])
def test_a_wrong_file_of_keys_is_named(tmp_path, content):
    file = tmp_path / "keys"
    file.write_text(content)
    with pytest.raises(ValueError, match=re.escape(str(file))):
        Keys.load(file)


def test_a_client_gets_its_requests_back(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("capsule_mt.serve.clients.time.monotonic", lambda: now[0])
    rates = Rates()
    assert [rates.take("a", 2) for _ in range(3)] == [0, 0, 30]
    assert rates.take("b", 2) == 0
    now[0] = 29.0
    assert rates.take("a", 2) == pytest.approx(1)
    now[0] = 31.0
    assert rates.take("a", 2) == 0


def test_the_name_of_the_server_is_checked(make_client):
    """Else a page of another site could call a server of this machine by a name that leads to its address."""
    client = make_client(RequestLimits(hosts=frozenset({"localhost", "::1"})))
    assert error_of(client.get("/health", host="evil.example"), 400) == (
        "the server is not called 'evil.example': start it with `--hosts evil.example`"
    )
    for host in ("localhost", "LOCALHOST:5000", "[::1]:5000"):
        assert client.get("/health", host=host).status_code == 200


def test_the_other_paths(client):
    assert client.get("/languages").json() == [
        {"code": "de", "name": "German", "targets": ["de"]},
        {"code": "en", "name": "English", "targets": ["de", "en"]},
        {"code": "xa", "name": "xa", "targets": ["xa", "xb"]},
        {"code": "xb", "name": "xb", "targets": ["xb"]},
    ]
    assert "does not detect languages" in error_of(client(("POST", "/detect", {"json": {"q": "a"}}))[0], 501)
    assert "does not detect languages" in error_of(client.translate(q="a", source="auto"), 501)
    assert error_of(client.post("/suggest", q="a"), 403) == "Suggestions are disabled on this server."
    specification = client.get("/spec").json()
    assert specification == client.get("/openapi.json").json()
    assert specification["info"]["version"] == __version__
    assert error_of(client.get("/nowhere"), 404) == "Not Found"
    message = error_of(client.get("/translate?q=Hello"), 405)
    assert message.startswith("Method Not Allowed: /translate takes POST, as in `curl http")
    assert message.endswith("/translate -d q=TEXT -d source=en -d target=de`")
    assert error_of(client.post("/languages"), 405) == "Method Not Allowed: /languages takes GET"
    assert "swagger" in client.get("/docs").text
    paths = client.get("/openapi.json").json()["paths"]
    assert "Other languages are never named" in paths["/detect"]["post"]["description"]
    assert {"/translate", "/cover", "/detect", "/translate_file", "/languages", "/health", "/metrics"} <= set(paths)


def test_pages_of_other_sites_may_call_the_server(make_client):
    origin, allowed = {"origin": "https://a.example"}, "access-control-allow-origin"
    preflight = {**origin, "access-control-request-method": "POST", "access-control-request-headers": "content-type"}
    for cors in ("*", "https://a.example", None):
        client = make_client(RequestLimits(cors=cors))
        (asked,) = client(("OPTIONS", "/translate", {"headers": preflight}))
        assert client.get("/languages", **origin).headers.get(allowed) == asked.headers.get(allowed) == cors
    client = make_client(RequestLimits(cors="https://a.example"))
    assert allowed not in client.get("/languages", origin="https://b.example").headers


@pytest.mark.parametrize("site", ["example.org", "https://example.org/", "https://a.example https://b.example", ""])
def test_a_site_that_no_browser_sends_is_refused(site, capsys):
    with pytest.raises(SystemExit):
        command_parser().parse_args(["de-en=x", "--cors", site])
    assert "--cors: must be a site such as https://example.org" in capsys.readouterr().err
    for accepted in ("*", "none", "https://example.org", "http://localhost:8000", "moz-extension://a-b"):
        assert command_parser().parse_args(["de-en=x", "--cors", accepted]).cors == accepted


# ---- the page
TYPES = {"html": "text/html", "js": "text/javascript", "css": "text/css"}


def test_the_page_is_complete(client):
    """It consists of its files alone: they name no other, and no other server."""
    assert {path.name for path in PAGE.iterdir()} == set(PAGE_FILES.values())
    html = client.get("/").text
    assert re.findall(r'(?:src|href)="([^"]*)"', html) == [
        "data:,",
        "page.css",
        "service.js",
        "reasons.js",
        "marks.js",
        "page.js",
    ]
    for path, name in PAGE_FILES.items():
        response = client.get(path)
        assert response.status_code == 200
        assert response.text == (PAGE / name).read_text(encoding="utf-8")
        assert response.headers["content-type"] == f"{TYPES[name.partition('.')[2]]}; charset=utf-8"
        assert not re.search(r"https?://|@import|url\(", response.text)


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
    client.translate(q=["a", "bc", "def"])
    client.translate(q=7)
    response = client.get("/metrics")
    assert response.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    lines = response.text.splitlines()
    assert 'capsule_mt_requests_total{path="/translate",status="200"} 1' in lines
    assert 'capsule_mt_requests_total{path="/translate",status="400"} 1' in lines
    assert 'capsule_mt_characters_total{pair="en-de"} 6' in lines
    assert 'capsule_mt_request_seconds_count{path="/translate"} 2' in lines
    assert 'capsule_mt_queued_sentences{pair="en-de"} 0' in lines


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
    student = Path(folder(tmp_path / "student"))
    (student / "vocab.enpt.spm").touch()
    assert language_pairs(
        [trained, marian, named, str(student), "Helsinki-NLP/opus-mt-en-ru", "eng_Latn-fr=x=y", f"cs-pl={trained}"]
    ) == {
        ("en", "de"): trained,
        ("fi", "sv"): marian,
        ("de", "en"): named,
        ("en", "pt"): str(student),
        ("en", "ru"): "Helsinki-NLP/opus-mt-en-ru",
        ("eng_Latn", "fr"): "x=y",
        ("cs", "pl"): trained,
    }


def test_the_pair_of_a_vocabulary_counts_more_than_the_name_of_its_folder(tmp_path):
    for name, pair in (("de-en", ("zh", "en")), ("zh-Hant-en", ("zh_hant", "en")), ("student", ("zh", "en"))):
        student = Path(folder(tmp_path / name))
        (student / "srcvocab.zhen.spm").touch()
        assert list(language_pairs([str(student)])) == [pair]


def models_of(*arguments):
    """Load the models of a command line."""
    return ModelList(command_parser().parse_args(list(map(str, arguments)))).load()


def test_a_folder_of_models_names_them(tmp_path):
    for name in ("en-de", "en-pt"):
        shutil.copytree(MODEL, tmp_path / "all models" / name)
    with pytest.raises(ValueError, match=r"all models: .* nor a model of Marian; it holds models, "):
        models_of(f"en-de={tmp_path / 'all models'}")
    with pytest.raises(ValueError, match="it holds models, name one, or several for `serve`: ") as refusal:
        models_of(tmp_path / "all models")
    assert list(models_of(*shlex.split(str(refusal.value).split("`serve`: ")[1]))[0]) == [("en", "de"), ("en", "pt")]
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match=r"empty: has neither config\.json nor a model of Marian$"):
        models_of(tmp_path / "empty")


def test_an_error_names_the_line_of_the_list(tmp_path):
    broken = shutil.copytree(MODEL, tmp_path / "broken")
    (broken / "tokenizer.json").write_text("{")
    (tmp_path / "empty").mkdir()
    list_file = tmp_path / "models.txt"
    for line, message in (
        ("pt=foo", "pt=foo: languages before a folder are codes, as in en-de=foo"),
        (f"en-pt={broken}", f"{broken}/tokenizer.json: "),
        (tmp_path / "empty", f"{tmp_path}/empty: has neither config.json nor a model of Marian"),
        ("en,de,en=many", "en,de,en=many: names the language en twice"),
        (f"en-de={MODEL}", f"en-de: name one checkpoint for each language pair, got {MODEL} and {MODEL}"),
        (f"en-pt={MODEL}", f"{MODEL}: translates one language pair, but is named for en-de and en-pt"),
    ):
        list_file.write_text(f"# ours\n\nen-de={MODEL}\n{line}  # new\n")
        with pytest.raises(ValueError, match=re.escape(f"{list_file}:4: {message}")):
            models_of("--models", list_file)


def test_languages_that_are_unknown_or_served_twice(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # a clone has a folder `outputs` after a training
    (tmp_path / "models").write_text("en-pt\n")
    for prefix in ("", "en-pt=", "en,pt,fr="):
        with pytest.raises(
            ValueError, match=r"/models: is a file, not a folder with a model; if it lists models, name it by"
        ):
            language_pairs([f"{prefix}{tmp_path / 'models'}"])
    with pytest.raises(
        ValueError, match="outputs/gdr: its languages are not known; name them, as in en-de=outputs/gdr"
    ):
        language_pairs(["outputs/gdr"])
    with pytest.raises(ValueError, match="nothere: no such folder, and not the name of a model"):
        language_pairs(["nothere"])
    for language, form in (("en", "en,de=many"), ("eng_Latn", "eng_Latn,de=many")):
        with pytest.raises(ValueError, match=f"; {language} is one language: name the others, too, as in `{form}`"):
            language_pairs([f"{language}=many"])
    with pytest.raises(ValueError, match="en-de: name one checkpoint for each language pair, got one and two"):
        language_pairs(["en-de=one", "en-de=two"])
    with pytest.raises(ValueError, match="en,de,en=many: names the language en twice, name it once"):
        language_pairs(["en,de,en=many"])
    with pytest.raises(ValueError, match="pt-BR,en,pt=many: names the language pt twice"):
        language_pairs(["pt-BR,en,pt=many"])


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("english-pt=outputs/one", "en-pt=outputs/one"),
        ("en_pt=one", "en-pt=one"),
        ("en-pt:outputs/one", "en-pt=outputs/one"),
        ("en-pt = one", "en-pt=one"),
        ("en=pt=one", "en-pt=one"),
        ("en,pt,German:outputs/one", "en,pt,de=outputs/one"),
        ("en-pt=", "en-pt=FOLDER"),
    ],
)
def test_a_mistyped_pair_with_a_folder_is_told_the_form(text, meant, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = meant.partition("=")[2]
    form = (
        f"{text}: languages before a folder are codes, as in en-de={folder}, or en,de,fr={folder} for a model of many"
    )
    with pytest.raises(ValueError, match=re.escape(f"{form} languages; did you mean `{meant}`?")):
        language_pairs([text])
    with pytest.raises(ValueError, match=r"^klingon=one: languages .* many languages$"):
        language_pairs(["klingon=one"])
    with pytest.raises(CatalogError, match=re.escape(f"{text}: name the folder alone, {folder}; only `capsule-mt")):
        load(text)
    for name in ("en-pt:tiny", "https://huggingface.co/a/b", "/tmp/a:b/c", "opus:mt"):
        assert languages_and_folder(name) is None


@pytest.mark.parametrize(("languages", "code"), [("en,de,english", "english"), ("en, de", " de"), ("en,", "")])
def test_a_list_of_languages_must_have_codes(languages, code):
    with pytest.raises(ValueError, match=f"{languages}=x: '{code}' must be a language code such as en, eng_Latn"):
        language_pairs([f"{languages}=x"])


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"train_result": {"recipe": ["en"]}}, r"train_result\.json: `recipe` must be an object, got \['en'\]"),
        ({"train_result": {"recipe": {"languages": "en-de"}}}, "`languages` must be an object, got 'en-de'"),
        (
            {"train_result": {"recipe": {"languages": {"source": 5}}}},
            "`source` must be a text of at most 100",
        ),
        (
            {"tokenizer_config": {"source_lang": "en" * 5000, "target_lang": "de"}},
            r"tokenizer_config\.json: `source_lang` must be a text of at most 100 characters, got '(en){98}\.\.\.$",
        ),
        (
            {"tokenizer_config": {"source_lang": ["en"]}},
            r"tokenizer_config\.json: `source_lang` must be a text of at most 100 characters, got",
        ),
    ],
)
def test_files_that_name_languages_otherwise(files, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        language_pairs([folder(tmp_path / "model", **files)])


@pytest.mark.parametrize(("name", "max_size"), [("train_result.json", 1 << 20), ("tokenizer_config.json", 1 << 23)])
@pytest.mark.parametrize("content", ["{", "[]", '{"a": "%s"}', "[" * 9999, '{"a": %s}' % ("9" * 9999)], ids=len)
def test_files_that_tell_the_pair_are_read_whole_or_refused_by_name(name, max_size, content, tmp_path):
    """The server reads them, and not only the process that loads a model first."""
    model = tmp_path / "opus-mt-en-de"
    model.mkdir()
    (model / name).write_text(content.replace("%s", "a" * max_size))
    message = rf"{name}: cannot be read as a JSON object of at most {max_size} bytes$"
    with pytest.raises(ValueError, match=message):
        language_pairs([str(model)])
    (model / name).write_text('{"a": "%s"}' % ("a" * (max_size - 9)))
    assert list(language_pairs([str(model)])) == [("en", "de")]


def test_a_list_of_languages_is_every_pair_of_them():
    # as in en-pt-BR=PATH, a region is dropped and a script is written as models write it
    assert language_pairs(["en,pt-BR,zh-Hant=a=b", "en-fr=other", "eng_Latn,por_Latn=a"]) == {
        **dict.fromkeys([("en", "pt"), ("pt", "en"), ("en", "zh_hant"), ("zh_hant", "en")], "a=b"),
        **dict.fromkeys([("pt", "zh_hant"), ("zh_hant", "pt")], "a=b"),
        ("en", "fr"): "other",
        **dict.fromkeys([("eng_Latn", "por_Latn"), ("por_Latn", "eng_Latn")], "a"),
    }


def test_pairs_of_one_model_share_a_batcher_and_tell_it_their_languages(make_client):
    translator = Upper()
    de_en = LanguagePair("de", "en")
    batchers = batchers_of({EN_DE: translator, de_en: translator, WORDS: Upper()})
    assert batchers[EN_DE] is batchers[de_en] is not batchers[WORDS]
    client = Client(batchers, RequestLimits(), None)
    try:
        for pair in (EN_DE, de_en):
            languages = {"source": pair.source, "target": pair.target}
            assert client.translate(q="a", **languages).json() == {"translatedText": "A"}
            assert client.post("/cover", q="b", translation="b", **languages).status_code == 200
        assert [options["languages"] for _, options in translator.calls] == [EN_DE, EN_DE, de_en, de_en]
        assert [(record["code"], record["targets"]) for record in client.get("/languages").json()] == [
            ("de", ["de", "en"]),
            ("en", ["de", "en"]),
            ("xa", ["xa", "xb"]),
            ("xb", ["xb"]),
        ]
        translator.free.clear()
        holding = []
        for index in range(2):  # one after the other: two at once would share a batch
            holding.append(batchers[EN_DE].submit(["held"], client=str(index)))
            until(lambda index=index: len(translator.calls) == 5 + index)
        waiting = batchers[de_en].submit(["c;d"], RequestSettings(languages=de_en), client="0")
        page = client.get("/metrics").text
        assert 'queued_sentences{pair="de-en"} 2' in page
        assert 'queued_sentences{pair="en-de"} 0' in page
        translator.free.set()
        assert [future.result(120)[0].text for order in (*holding, waiting) for future in order.results][-1] == "C;D"
    finally:
        translator.free.set()
        for batcher in batchers.values():
            batcher.close()
        client.readers.close()
