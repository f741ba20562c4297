"""The language pair of a checkpoint, and the names of languages."""

import os
import re
from collections.abc import Iterable, Mapping
from itertools import permutations
from types import MappingProxyType
from typing import Any, NamedTuple

from capsule_mt.catalog.entries import is_archive, languages_and_folder, languages_in
from capsule_mt.files.outputs import read_small_object
from capsule_mt.messages import shown
from capsule_mt.text.languages import LANGUAGES, REGION, TWO_LETTER_CODES, is_surely_other_language, without_region

# en, eng_Latn, pt-BR, zh-Hant-TW
LANGUAGE = rf"[A-Za-z]{{2,3}}(?:_[A-Za-z0-9]+)*(?:-(?:{REGION}|[A-Z][a-z]{{3}})(?:-{REGION})?)?"
# several languages of one model, such as en,de,zh-Hant=PATH
LANGUAGES_AND_PATH = r"(?P<languages>[^=,/\\]+,[^=/\\]*)=(?P<path>.+)"
PAIR = rf"(?P<source>{LANGUAGE})-(?P<target>{LANGUAGE})"
PAIR_AND_PATH = rf"{PAIR}=(?P<path>.+)"
# vocab.enpt.spm, srcvocab.enja.spm: names in the students of Firefox Translations
VOCABULARY = r"(?:src)?vocab\.(?P<source>[a-z]{2})(?P<target>[a-z]{2})\.spm"
MAX_LANGUAGE = 100  # characters of a code
MAX_TOKENIZER_CONFIG = 1 << 23  # bytes: it may list thousands of added tokens, of about 200 bytes each


class LanguagePair(NamedTuple):
    """The language codes of a model."""

    source: str
    target: str

    def __str__(self) -> str:
        return f"{self.source}-{self.target}"


def language_pairs(
    checkpoints: Iterable[str], named_before: Mapping[LanguagePair, str] = MappingProxyType({})
) -> dict[LanguagePair, str]:
    """Return the checkpoint of each language pair, from paths, names, `SRC-TGT=PATH`, or `LANG,LANG,...=PATH`.

    named_before: the checkpoints of further pairs, which the result includes.
    """
    checkpoint_of = dict(named_before)
    for text in checkpoints:
        path, pairs = _path_and_pairs(text)
        for pair in pairs:
            if pair in checkpoint_of:
                raise ValueError(
                    f"{pair}: name one checkpoint for each language pair, got {checkpoint_of[pair]} and {path}"
                )
            checkpoint_of[pair] = path
    return checkpoint_of


def _path_and_pairs(text: str) -> tuple[str, list[LanguagePair]]:
    """Split an argument into a path and its language pairs."""
    match = re.fullmatch(LANGUAGES_AND_PATH, text) or re.fullmatch(PAIR_AND_PATH, text)
    path = match["path"] if match else text
    if os.path.isfile(path) and not is_archive(path):
        raise ValueError(f"{path}: is a file, not a folder with a model; if it lists models, name it by --models")
    if match and match.re.pattern == LANGUAGES_AND_PATH:
        return path, [LanguagePair(*pair) for pair in permutations(_languages_before(match), 2)]
    if match is None and (mistyped := languages_and_folder(text)):
        languages, folder = mistyped
        raise ValueError(
            f"{text}: languages before a folder are codes, as in en-de={folder}, or en,de,fr={folder} for a model of "
            f"many languages{_advice(languages, folder)}"
        )
    pair = _pair_in(match) if match else pair_of(path)
    if pair is None:
        if not os.path.exists(path):
            from capsule_mt.catalog.store import name_of  # late: this is an error

            name_of(path)  # raises if it cannot be a name
        raise ValueError(
            f"{path}: its languages are not known; name them, as in en-de={path}, or en,de,fr={path} for a model of "
            "many languages"
        )
    return path, [pair]


def _advice(languages: str, folder: str) -> str:
    """Return what to type instead of `languages`=`folder`, to end an error; empty if unsure."""
    if re.fullmatch("[a-z]{2,3}(?:_[A-Z][a-z]{3})?", languages):
        other = "de" if languages.startswith("en") else "en"
        return f"; {languages} is one language: name the others, too, as in `{languages},{other}={folder}`"
    codes_of = {name.lower(): code for code, name in LANGUAGES.items() if code != "nb"}
    codes_of |= {code: code for code in (*LANGUAGES, *TWO_LETTER_CODES)}
    codes = [codes_of.get(word) for word in re.findall("[a-z]+", languages.lower())]
    if None in codes or len(codes) < 2 or (len(codes) > 2 and "," not in languages):
        return ""
    return f"; did you mean `{(',' if ',' in languages else '-').join(map(str, codes))}={folder}`?"


def languages_of(folder: str | os.PathLike[str], option: str | None) -> LanguagePair:
    """Return the pair named by `--languages`, or else the one that the model's folder tells."""
    match = None if option is None else re.fullmatch(PAIR, option)
    if option is not None and match is None:
        raise ValueError(f"`--languages` must be like en-de, got {option!r}")
    pair = _pair_in(match) if match else pair_of(os.fspath(folder))
    if pair is None:
        raise ValueError(f"{folder}: its languages are not known; name them, as in --languages en-de")
    return pair


def _pair_in(match: re.Match[str]) -> LanguagePair:
    """Return the pair of a match of `PAIR`."""
    return LanguagePair(_without_region(match["source"]), _without_region(match["target"]))


def _languages_before(match: re.Match[str]) -> list[str]:
    """Return the languages of `LANG,LANG,...=PATH`; refuse what is not a code, and a language named twice."""
    languages: list[str] = []
    for code in match["languages"].split(","):
        if re.fullmatch(LANGUAGE, code) is None:
            raise ValueError(f"{match[0]}: {code!r} must be a language code such as en, eng_Latn or pt-BR")
        language = _without_region(code)
        if language in languages:
            raise ValueError(f"{match[0]}: names the language {language} twice, name it once")
        languages.append(language)
    return languages


def _without_region(code: str) -> str:
    """Drop a region after a hyphen, but keep a model's code such as "eng_Latn"."""
    return without_region(code) if "-" in code else code


def pair_of(path: str) -> LanguagePair | None:
    """Return the pair that a model's recipe, tokenizer, package, name or vocabulary tells; `None` if none does."""
    result_file, tokenizer_file, package_file = (
        os.path.join(path, name) for name in ("train_result.json", "tokenizer_config.json", "metadata.json")
    )
    recipe = _field(result_file, read_small_object(result_file), "recipe", dict) or {}
    languages = _field(result_file, recipe, "languages", dict) or {}
    tokenizer = read_small_object(tokenizer_file, MAX_TOKENIZER_CONFIG)
    for file, fields, names in (
        (result_file, languages, ("source", "target")),
        (tokenizer_file, tokenizer, ("source_lang", "target_lang")),
        (package_file, read_small_object(package_file), ("from_code", "to_code")),  # of Argos Translate
    ):
        source, target = (_field(file, fields, name, str) for name in names)
        if source and target:
            return LanguagePair(source, target)
    languages_in_name = languages_in(os.path.basename(os.path.normpath(path)) if os.path.exists(path) else path)
    files = os.listdir(path) if os.path.isdir(path) else ()
    vocabulary = next(filter(None, (re.fullmatch(VOCABULARY, file) for file in files)), None)
    named = languages_in_name and LanguagePair(*languages_in_name)
    if vocabulary is None:
        return named
    pair = LanguagePair(vocabulary["source"], vocabulary["target"])
    # a name may be more precise: "zh-Hant" rather than "zh"
    return pair if named is None or any(map(is_surely_other_language, named, pair)) else named


def _field(file: str, fields: Mapping[str, Any], name: str, kind: type[dict[str, Any]] | type[str]) -> Any:
    """Return a field of a JSON object, or `None` if it is missing; refuse one of another type, or too long."""
    value = fields.get(name)
    if value is not None and (not isinstance(value, kind) or (kind is str and len(value) > MAX_LANGUAGE)):
        expected = f"a text of at most {MAX_LANGUAGE} characters" if kind is str else "an object"
        raise ValueError(f"{file}: `{name}` must be {expected}, got {shown(value)}")
    return value


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
