"""Hostile files of formats, YAML of Marian's, catalogs and calibrations: each is read, or refused by one sentence."""

import copy
import json
import math
import random
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from capsule_mt import CoverageOptions, Translator
from capsule_mt.catalog import mozilla
from capsule_mt.catalog.entries import CatalogEntry, CatalogError
from capsule_mt.formats.reading import parse
from capsule_mt.formats.registry import format_of
from capsule_mt.formats.units import FormatError, Translated
from capsule_mt.models.checking import check_calibration
from capsule_mt.models.marian_yaml import read_vocabulary, read_yaml
from capsule_mt.models.weights import CheckpointError
from tests.fuzz.values import VALUES, changed_value, paths_in
from tests.light.formats.files import FILES
from tests.light.formats.test_hostile import COLUMNS, changed

Case = dict[str, Any]


def check_message(error: Exception, start: str) -> None:
    """An error begins with what it is about, and is not as long as the value that it refuses."""
    assert str(error).startswith(start), error
    assert len(str(error)) < 600, error


# ---- formats
def make_format(generator: random.Random) -> Case:
    name = generator.choice(sorted(FILES))
    return {"file": name, "content": changed(name, generator).decode("latin-1")}


def check_format(case: Case) -> None:
    format = format_of(case["file"])
    assert format is not None
    try:
        parsed = parse(
            case["content"].encode("latin-1"), format, name=case["file"], column=COLUMNS.get(format), language="de"
        )
    except FormatError as error:
        check_message(error, case["file"])
        return
    parsed.write([Translated(unit.text) for unit in parsed.units])


# ---- YAML
YAML = """\
relative-paths: true
models: [model.npz]
vocabs:
  - en.spm
  - 'de''s.spm'
beam-size: 6
normalize: 0.6
"a": "\\u00e9"
word-penalty: ~
"""
YAML_TOKENS = ("[", "]", "{", "}", "- ", ": ", "'", '"', "\\", "#", "&a", "*a", "!!python", "\t", "\r", "\0", "---",
               "[" * 5000, "9" * 5000, "1e999", "\ud800", "\u2028", "- - -", "|", ">", "@", "\n")  # fmt: skip


def with_yaml_tokens(text: str, generator: random.Random) -> str:
    """Return a text with parts that are removed, doubled, or replaced by what has a meaning in YAML."""
    for _ in range(generator.randint(1, 4)):
        start = generator.randrange(len(text) + 1)
        end = min(len(text), start + generator.choice((0, 0, 1, 3, 30)))
        text = text[:start] + generator.choice(("", text[start:end] * 2, *YAML_TOKENS)) + text[end:]
    return text


def make_yml(generator: random.Random) -> Case:
    return {"text": with_yaml_tokens(YAML, generator)}


def check_yml(case: Case) -> None:
    try:
        values = read_yaml(case["text"], "config.yml")
    except CheckpointError as error:
        check_message(error, "config.yml:")
        return
    for value in values.values():
        for item in value if isinstance(value, list) else [value]:
            assert item is None or isinstance(item, (str, int, float, bool)), value


# ---- vocabularies
VOCABULARY = {
    ".yml": """---\n"</s>": 0\n<unk>: 1\n"\\u2581a": 2\n\u2581the: 3\n"\\"": 4\n'''': 5\n"\\x85": 6\na: 7\n""",
    ".txt": '</s>\n<unk>\n\u2581a\n\u2581the\n"\na: b\n',
    ".json": '{"</s>": 0, "<unk>": 1, "\\u2581a": 2, "\\"": 3}',
}


def make_vocabulary(generator: random.Random) -> Case:
    suffix = generator.choice(sorted(VOCABULARY))
    return {"suffix": suffix, "text": with_yaml_tokens(VOCABULARY[suffix], generator)}


def check_vocabulary(case: Case) -> None:
    """A vocabulary is refused, or its tokens have the numbers from 0 on."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / f"vocab{case['suffix']}"
        file.write_bytes(case["text"].encode("utf-8", "surrogatepass"))
        try:
            tokens = read_vocabulary(str(file))
        except CheckpointError as error:
            check_message(error, str(file))
            return
    assert sorted(tokens.values()) == list(range(len(tokens)))
    assert all(isinstance(token, str) for token in tokens)


# ---- catalogs
REGISTRY: dict[str, Any] = {
    "baseUrl": "https://example.org/models",
    "models": {
        f"en-{language}": [
            {
                "architecture": size,
                "releaseStatus": "Release",
                "version": "2.0",
                "files": {
                    kind: {"path": f"models/{language}/{kind}.gz", "uncompressedSize": 5, "uncompressedHash": "ab"}
                    for kind in ("model", "vocab", "lexicalShortlist")
                },
            }
            for size in ("tiny", "base")
        ]
        for language in ("de", "pt")
    },
}


def make_catalog(generator: random.Random) -> Case:
    path = generator.choice(paths_in(REGISTRY, depth=8))
    return {"delete": path} if generator.random() < 0.2 else {"at": path, "value": generator.choice(VALUES)}


def check_catalog(case: Case) -> None:
    url = "https://example.org/db/models.json"
    try:
        entries = mozilla.entries_of(changed_value(REGISTRY, case), url)
    except CatalogError as error:
        check_message(error, url)
        return
    for entry in entries:
        assert isinstance(entry, CatalogEntry)
        assert entry.size >= 0
        for file in entry.files:
            assert "/" not in file.name
            assert file.name not in (".", "..")


# ---- calibrations
@cache
def sound_model() -> Any:
    from tests.fuzz import cases  # late: it lists the targets of this file

    return cases.sound_model()


def make_calibration(generator: random.Random) -> Case:
    path = generator.choice(paths_in(sound_model().calibration))
    return {"delete": path} if generator.random() < 0.2 else {"at": path, "value": generator.choice(VALUES)}


def check_calibration_case(case: Case) -> None:
    """A calibration is refused, or covers with every method."""
    model = sound_model()
    calibration = changed_value(copy.deepcopy(model.calibration), case)
    try:
        check_calibration(calibration, model.head_shape, "config.json")
    except CheckpointError as error:
        check_message(error, "config.json: `coverage_calibration")
        return
    for method in ("attention", "deletion"):
        translator = Translator(model._replace(calibration=json.loads(json.dumps(calibration))))
        try:
            translation = translator("Der Hund.", coverage=CoverageOptions(method=method), max_new_tokens=5)
        except ValueError as error:
            check_message(error, f'`method="{method}"` needs')
            continue
        assert translation.coverage is not None
        assert math.isfinite(translation.coverage.score)
