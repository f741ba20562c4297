"""The language pair of a checkpoint, and the names of languages."""

import os
import re
from collections.abc import Iterable
from itertools import permutations
from pathlib import Path
from typing import NamedTuple

from capsule_mt.catalog.entries import languages_in
from capsule_mt.catalog.store import name_of
from capsule_mt.files.outputs import read_object
from capsule_mt.text.languages import LANGUAGES, without_region

LANGUAGE = r"[A-Za-z]{2,3}(?:_[A-Za-z0-9]+)*(?:-(?:[A-Z]{2}|[A-Z][a-z]{3}))?"  # en, eng_Latn, pt-BR
# several languages of one model, such as en,de,zh-Hant=PATH
LANGUAGES_AND_PATH = re.compile(r"(?P<languages>[\w-]+(?:,[\w-]+)+)=(?P<path>.+)")
PAIR_AND_PATH = re.compile(rf"(?P<source>{LANGUAGE})-(?P<target>{LANGUAGE})=(?P<path>.+)")
# vocab.enpt.spm, srcvocab.enja.spm: names in the students of Firefox Translations
VOCABULARY = re.compile(r"(?:src)?vocab\.(?P<source>[a-z]{2})(?P<target>[a-z]{2})\.spm")


class LanguagePair(NamedTuple):
    """The language codes of a model."""

    source: str
    target: str

    def __str__(self) -> str:
        return f"{self.source}-{self.target}"


def language_pairs(checkpoints: Iterable[str]) -> dict[LanguagePair, str]:
    """Return the checkpoint of each language pair, from paths, names, `SRC-TGT=PATH`, or `LANG,LANG,...=PATH`."""
    checkpoint_of: dict[LanguagePair, str] = {}
    for text in checkpoints:
        path, pairs = _path_and_pairs(text)
        for pair in pairs:
            if pair in checkpoint_of:
                raise ValueError(
                    f"{pair}: one checkpoint for each language pair, got {checkpoint_of[pair]} and {path}"
                )
            checkpoint_of[pair] = path
    return checkpoint_of


def _path_and_pairs(text: str) -> tuple[str, list[LanguagePair]]:
    """Split an argument into a path and its language pairs."""
    if match := LANGUAGES_AND_PATH.fullmatch(text):
        return match["path"], [LanguagePair(*pair) for pair in permutations(match["languages"].split(","), 2)]
    match = PAIR_AND_PATH.fullmatch(text)
    path = match["path"] if match else text
    pair = _pair_before(match) if match else pair_of(path)
    if pair is None:
        if not Path(path).exists():
            name_of(path)  # raises if it cannot be a name
        raise ValueError(
            f"{path}: its languages are not known; name them, as in en-de={path}, or en,de,fr={path} for a model of "
            "many languages"
        )
    return path, [pair]


def languages_of(folder: Path, option: str | None) -> LanguagePair:
    """Return the pair named by `--languages`, or else the one that the model's folder tells."""
    match = PAIR_AND_PATH.fullmatch(f"{option}={folder}")
    if option is not None and match is None:
        raise ValueError(f"`--languages` must be like en-de, got {option!r}")
    pair = _pair_before(match) if match else pair_of(os.fspath(folder))
    if pair is None:
        raise ValueError(f"{folder}: its languages are not known; name them, as in --languages en-de")
    return pair


def _pair_before(match: re.Match[str]) -> LanguagePair:
    """Return the pair of `SRC-TGT=PATH`; drop a region after a hyphen, but keep a model's code such as "eng_Latn"."""
    source, target = (without_region(code) if "-" in code else code for code in (match["source"], match["target"]))
    return LanguagePair(source, target)


def pair_of(path: str) -> LanguagePair | None:
    """Return the pair named by a checkpoint's training recipe, tokenizer, name or vocabulary, in this order."""
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
    languages_in_name = languages_in(Path(path).name if Path(path).exists() else path)
    if languages_in_name:
        return LanguagePair(*languages_in_name)
    files = map(VOCABULARY.fullmatch, os.listdir(path) if Path(path).is_dir() else ())
    vocabulary = next(filter(None, files), None)
    return vocabulary and LanguagePair(vocabulary["source"], vocabulary["target"])


def describe_languages(pairs: Iterable[LanguagePair]) -> list[dict[str, object]]:
    """Return the languages and their targets as LibreTranslate lists them; each language is also its own target."""
    targets_of: dict[str, set[str]] = {}
    for pair in pairs:
        targets_of.setdefault(pair.source, {pair.source}).add(pair.target)
        targets_of.setdefault(pair.target, {pair.target})
    return [
        {"code": code, "name": LANGUAGES.get(code, code), "targets": sorted(targets)}
        for code, targets in sorted(targets_of.items())
    ]
