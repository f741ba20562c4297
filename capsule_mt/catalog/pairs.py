"""Which languages a checkpoint translates between, and what they are called."""

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from capsule_mt.catalog.entries import languages_in
from capsule_mt.catalog.store import name_of
from capsule_mt.files.outputs import read_object
from capsule_mt.text.languages import LANGUAGES

CODE = r"[A-Za-z]{2,3}(?:_[A-Za-z0-9]+)*"
GIVEN = re.compile(rf"(?P<source>{CODE})-(?P<target>{CODE})=(?P<path>.+)")

# vocab.enpt.spm, srcvocab.enja.spm: of the students of Firefox Translations
VOCABULARY = re.compile(r"(?:src)?vocab\.(?P<source>[a-z]{2})(?P<target>[a-z]{2})\.spm")


class LanguagePair(NamedTuple):
    """The codes of the languages of a model."""

    source: str
    target: str

    def __str__(self) -> str:
        return f"{self.source}-{self.target}"


def language_pairs(checkpoints: Iterable[str]) -> dict[LanguagePair, str]:
    """Return the checkpoint of each language pair; each is given as a path or a name, or as `SRC-TGT=PATH`."""
    found: dict[LanguagePair, str] = {}
    for text in checkpoints:
        given = GIVEN.fullmatch(text)
        path = given["path"] if given else text
        pair = LanguagePair(given["source"], given["target"]) if given else pair_of(path)
        if pair is None:
            if not Path(path).exists():
                name_of(path)  # which complains of what is no name
            raise ValueError(f"{path}: its languages are not known; name them, as in en-de={path}")
        if pair in found:
            raise ValueError(f"{pair}: one checkpoint for each language pair, got {found[pair]} and {path}")
        found[pair] = path
    return found


def languages_of(folder: Path, named: str | None) -> LanguagePair:
    """Return the languages that `--languages` names, or else those of the model in a folder."""
    given = GIVEN.fullmatch(f"{named}={folder}")
    if named is not None and given is None:
        raise ValueError(f"`--languages` must be like en-de, got {named!r}")
    pair = LanguagePair(given["source"], given["target"]) if given else pair_of(os.fspath(folder))
    if pair is None:
        raise ValueError(f"{folder}: its languages are not known; name them, as in --languages en-de")
    return pair


def pair_of(path: str) -> LanguagePair | None:
    """Return the languages of the recipe that a checkpoint was trained by, of its tokenizer, or in a name."""
    result, tokenizer = (
        read_object(Path(path, name)) or {} for name in ("train_result.json", "tokenizer_config.json")
    )
    recipe = result.get("recipe") or {}
    languages = recipe.get("languages") or {}
    for source, target in (
        (languages.get("source"), languages.get("target")),
        (tokenizer.get("source_lang"), tokenizer.get("target_lang")),
    ):
        if source and target:
            return LanguagePair(source, target)
    named = languages_in(Path(path).name if Path(path).exists() else path)
    if named:
        return LanguagePair(*named)
    files = map(VOCABULARY.fullmatch, os.listdir(path) if Path(path).is_dir() else ())
    vocabulary = next(filter(None, files), None)
    return vocabulary and LanguagePair(vocabulary["source"], vocabulary["target"])


def describe_languages(pairs: Iterable[LanguagePair]) -> list[dict[str, object]]:
    """Return the languages and their targets as LibreTranslate lists them: each is also a target of itself."""
    targets: dict[str, set[str]] = {}
    for pair in pairs:
        targets.setdefault(pair.source, {pair.source}).add(pair.target)
        targets.setdefault(pair.target, {pair.target})
    return [
        {"code": code, "name": LANGUAGES.get(code, code), "targets": sorted(found)}
        for code, found in sorted(targets.items())
    ]
