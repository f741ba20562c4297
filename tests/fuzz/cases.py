"""Hostile inputs: how to make one, and what must hold for each.

A case is a JSON object: what it is, and how it differs from a sound input. So it is small, and stays true when the
sound input changes. Each `check_*` raises an error unless the case is carried out, or refused by one sentence.
"""

import asyncio
import json
import math
import random
import shutil
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import httpx

from capsule_mt import CoverageOptions, Translator
from capsule_mt.catalog.pairs import LanguagePair
from capsule_mt.conversions.to_int8 import write_checkpoint
from capsule_mt.engine.program import UnsupportedModelError
from capsule_mt.models.checksums import write_facts
from capsule_mt.models.loading import load_model
from capsule_mt.models.small_weights import FORMAT, write_small_weights
from capsule_mt.models.weights import SMALL_FILE, CheckpointError
from capsule_mt.serve.answers import RequestLimits
from capsule_mt.serve.app import build_app
from capsule_mt.serve.batching import Batcher
from capsule_mt.serve.metrics import Metrics
from tests.fixtures.marian_models import marian_folder
from tests.fixtures.students import write_student
from tests.fuzz import parsers
from tests.fuzz.built import check_built, make_built
from tests.fuzz.folders import check_folder, make_folder
from tests.fuzz.pickles import check_pickle, make_pickle
from tests.fuzz.programs import check_program, make_program
from tests.fuzz.searches import Case, check_search, make_search
from tests.fuzz.strangers import check_stranger, make_stranger
from tests.fuzz.values import VALUES, changed_value, paths_in
from tests.light.models.files import edit_json, golden
from tests.light.serve.fakes import Upper

# a checkpoint of this project; a student of Marian's in two forms, int8 and npz; OPUS-MT's folder; a small checkpoint
KINDS = ("capsule_marian", "int8", "npz", "opus", "small")
TEXT = "The old man buys a red hat."


# ---- files
@cache
def sound_folder(kind: str = "capsule_marian") -> Path:
    folder = Path(tempfile.mkdtemp()) / "model"
    if kind == "opus":
        return marian_folder("yml", folder)
    if kind == "small":
        write_checkpoint(write_student(folder.with_name("student")), folder, write_small_weights)
        return folder
    if kind != "capsule_marian":
        return write_student(folder, kind)
    golden(kind, folder)
    (folder / "expected.json").unlink()
    released = json.loads((Path(__file__).parents[2] / "checkpoints/capsule-marian-de-en/config.json").read_text())
    edit_json(folder / "config.json", coverage_calibration=released["coverage_calibration"])
    return folder


def make_file(generator: random.Random) -> Case:
    case = {"kind": generator.choice(KINDS)}
    file = generator.choice(sorted(sound_folder(case["kind"]).iterdir()))
    case["file"] = name = file.name
    content = file.read_bytes()
    if name.endswith(".json") and generator.random() < 0.9:
        path = generator.choice(paths_in(json.loads(content)))
        if generator.random() < 0.2:
            return {**case, "delete": path}
        return {**case, "at": path, "value": generator.choice(VALUES)}
    if name.endswith(".yml") and generator.random() < 0.8:
        return {**case, "text": parsers.with_yaml_tokens(content.decode(), generator)}
    # the header of weights is worth more than their numbers
    max_length = min(len(content), 4000 if generator.random() < 0.8 else len(content))
    flips = [
        [generator.randrange(max_length), generator.randrange(256)] for _ in range(generator.choice((0, 1, 1, 2, 8)))
    ]
    length = generator.randrange(len(content) + 1) if generator.random() < 0.3 or not flips else len(content)
    return {**case, "flips": flips, "length": length}


def changed(content: bytes, case: Case) -> bytes:
    if "text" in case:
        return str(case["text"]).encode("utf-8", "surrogatepass")
    if "flips" in case:
        content_bytes = bytearray(content[: case["length"]])
        for position, byte in case["flips"]:
            if position < len(content_bytes):
                content_bytes[position] = byte
        return bytes(content_bytes)
    value = changed_value(json.loads(content), case)
    # a whole document that is deleted, or becomes null, leaves an empty file
    return b"" if value is None and not case.get("delete", case.get("at")) else json.dumps(value).encode()


def check_file(case: Case) -> None:
    """A checkpoint loads and translates, in finite numbers, or one sentence names its folder."""
    with tempfile.TemporaryDirectory() as there:
        folder = shutil.copytree(sound_folder(case.get("kind", KINDS[0])), Path(there) / "model")
        file = folder / case["file"]
        try:
            content = changed(file.read_bytes(), case)
        except (KeyError, IndexError, TypeError):
            return  # the sound input has become another
        file.write_bytes(content)
        if case["file"] == SMALL_FILE:  # with the old checksum, no change would get past its check
            write_facts(str(file), FORMAT)
        try:
            model = load_model(folder, shortlist=case["file"].startswith("lex"))
        except (CheckpointError, UnsupportedModelError) as error:
            message = str(error)
            if not message.startswith(str(folder)) and not isinstance(error, UnsupportedModelError):
                raise AssertionError(f"the error names no file: {message}") from error
            return
        try:
            translation = Translator(model)(TEXT, coverage=CoverageOptions(), max_new_tokens=20)
        except ValueError:
            return
        if not translation.segments:  # a tokenizer that finds no token in it
            assert translation.text == TEXT
            return
        assert translation.score is not None
        assert math.isfinite(translation.score)
        assert translation.coverage is not None, "coverage failed, and only a warning says so"
        assert 0 <= translation.coverage.score <= 1


@cache
def sound_model() -> Any:
    return load_model(sound_folder())


# ---- texts
PIECES = [
    *("a", "The", "fox", " ", "  ", "\n", ".", "?!", "<b>", "</b>", "{0}", "https://a.b/c", "3.5", "\u200d", "\ufeff"),
    *("\ud800", "\0", "é", "漢字", "😀", "\u0301", "\ufb01", "\u202e", "a" * 300, "- ", "`x`", ">>de<<"),
]


def make_text(generator: random.Random) -> Case:
    return {"text": "".join(generator.choices(PIECES, k=generator.choice((0, 1, 3, 10, 60))))}


def check_text(case: Case) -> None:
    """Any text is translated, however odd."""
    translator = Translator(sound_model())
    for options in ({}, {"keep": ("tags", "urls", "placeholders", "numbers"), "coverage": CoverageOptions()}):
        translations = translator(case["text"], batch_size=8, max_new_tokens=30, **options)
        assert isinstance(translations.text, str)
        translations.text.encode()


# ---- requests
@cache
def application() -> Any:
    batchers = {LanguagePair("en", "de"): Batcher(Upper(), wait_seconds=0.0)}
    return build_app(batchers, RequestLimits(max_characters=2000, read_seconds=1.0, request_seconds=5.0), Metrics())


def make_request(generator: random.Random) -> Case:
    fields: dict[str, Any] = {"q": "a b", "source": "en", "target": "de"}
    for _ in range(generator.choice((0, 1, 1, 2))):
        name = generator.choice(("q", "source", "target", "format", "alternatives", "num_beams", "beams",
                                 "coverage", "translation", "length_penalty", "api_key", "file", "x"))  # fmt: skip
        fields[name] = generator.choice([*VALUES, "html", "auto", "de", "<p>a", ["a", "b"]])
    body = json.dumps(fields)
    kind = generator.choice(("application/json", "application/json", "application/x-www-form-urlencoded",
                             "multipart/form-data; boundary=x", "multipart/form-data", "text/plain", ""))  # fmt: skip
    if kind.startswith("multipart"):
        body = "".join(
            f'--x\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
            for name, value in fields.items()
        )
        body += "--x--\r\n"
    elif "urlencoded" in kind:
        body = "&".join(f"{name}={value}" for name, value in fields.items())
    if generator.random() < 0.2:
        body = body[: generator.randrange(len(body) + 1)]
    path = generator.choice(
        ("/translate", "/translate", "/cover", "/detect", "/translate_file", "/suggest", "/languages")
    )
    query = generator.choice(("", "", "?q=a&source=en&target=de", "?q=%ff", "?q=a&q=b"))
    return {
        "method": generator.choice(("POST",) * 5 + ("GET", "PUT")),
        "path": path + query,
        "type": kind,
        "body": body,
    }


def check_request(case: Case) -> None:
    """Each request gets an answer that is no error of the server, and an error has one sentence."""

    async def send() -> httpx.Response:
        transport = httpx.ASGITransport(app=application(), raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            headers = {"content-type": case["type"]} if case["type"] else {}
            content = case["body"].encode("utf-8", "surrogatepass")
            return await client.request(case["method"], case["path"], content=content, headers=headers, timeout=30)

    response = asyncio.run(send())
    assert response.status_code < 500 or response.status_code == 501, response.text
    if response.status_code >= 400:
        assert isinstance(response.json()["error"], str)


TARGETS: dict[str, tuple[Callable[[random.Random], Case], Callable[[Case], None]]] = {
    "file": (make_file, check_file),
    "folder": (make_folder, check_folder),
    "search": (make_search, check_search),
    "text": (make_text, check_text),
    "request": (make_request, check_request),
    "format": (parsers.make_format, parsers.check_format),
    "built": (make_built, check_built),
    "yml": (parsers.make_yml, parsers.check_yml),
    "vocabulary": (parsers.make_vocabulary, parsers.check_vocabulary),
    "catalog": (parsers.make_catalog, parsers.check_catalog),
    "calibration": (parsers.make_calibration, parsers.check_calibration_case),
    "program": (make_program, check_program),
    "pickle": (make_pickle, check_pickle),
    "stranger": (make_stranger, check_stranger),
}
