"""Parallel text from files, the hub or the embedded grammar, all ending as the `translation` column of a data set."""

import glob
import gzip
import json
import os
import zlib
from collections.abc import Callable, Container, Iterator, Mapping
from pathlib import Path
from typing import Any

from datasets import (
    Dataset,
    DatasetDict,
    Features,
    IterableDataset,
    IterableDatasetDict,
    concatenate_datasets,
    load_dataset,
)
from datasets import Translation as TranslationFeature
from datasets.exceptions import DatasetGenerationError

from hf_capsule_mt.data.embedded_corpus import embedded_corpus

# kind of source -> the settings that it takes beside its own name
SOURCE_SETTINGS: dict[str, frozenset[str]] = {
    "hub": frozenset({"config", "split", "revision"}),
    "text": frozenset(),
    "tsv": frozenset({"columns", "header"}),
    "jsonl": frozenset(),
    "parquet": frozenset(),
    "embedded": frozenset({"seed"}),
}
COMMON_SETTINGS = frozenset({"first"})

Source = Mapping[str, Any]
Pair = tuple[str, str]


def load_translation_data(
    parts: Mapping[str, Source | list[Source]],
    source_language: str,
    target_language: str,
    *,
    streaming: bool = False,
    num_proc: int | None = None,
    allow_empty: Container[str] = (),
) -> DatasetDict | IterableDatasetDict:
    """Parts such as "train" and "validation", each from a source or from several, one after the other.

    A source is a mapping with one of these keys; `first: n` takes the first n pairs of any of them.

    | key | value | beside it |
    |---|---|---|
    | `hub` | a data set, or a folder of that shape, with a `translation` column | `config`, `split`, `revision` |
    | `text` | `[source file, target file]`, a sentence per line | |
    | `tsv` | file | `columns`: two names or numbers from 0 (default `[0, 1]`); `header`: whether line 1 has names |
    | `jsonl` | file, each line with `translation`, or with the two languages | |
    | `parquet` | file, with the column `translation`, or with the two languages | |
    | `embedded` | number of sentence pairs of the embedded corpus, English and German | `seed` |

    Files may end in .gz; `tsv`, `jsonl` and `parquet` take patterns (`part-*.jsonl`). Nothing is guessed: a line that
    cannot be a pair is an error that names the file and the line.

    Of the embedded corpus the validation part is drawn first, then the test part, then the training part, so that they
    are disjoint. Calls agree on that if they name the same sizes of validation and test (by default 500 and 1,000):
    training data that are loaded beside a smaller test part hold sentences of a larger one.

    Args:
        streaming: read lazily, for what does not fit on the disk: the parts are then `IterableDataset`s.
        num_proc: processes that read files, when a source consists of several.
        allow_empty: names of parts that keep pairs with an empty side, for a cleaning that drops them.
    """
    loaded: dict[str, Any] = {}
    sizes = {
        name: source["embedded"]
        for name, sources in parts.items()
        for source in _as_list(sources)
        if "embedded" in source
    }
    for name, sources in parts.items():
        pieces = []
        for source in _as_list(sources):
            kind = _kind(source, name)
            if kind == "embedded":
                piece: Any = _embedded(source, name, sizes, (source_language, target_language), streaming)
            else:
                load = _load_hub if kind == "hub" else _load_files
                piece = load(
                    source, name, (source_language, target_language), streaming, num_proc, name in allow_empty
                )
            pieces.append(piece.take(source["first"]) if source.get("first") is not None else piece)
        loaded[name] = concatenate_datasets(pieces) if len(pieces) > 1 else pieces[0]
    return (IterableDatasetDict if streaming else DatasetDict)(loaded)


def _as_list(sources: Source | list[Source]) -> list[Source]:
    return list(sources) if isinstance(sources, (list, tuple)) else [sources]


def _kind(source: Source, name: str) -> str:
    kinds = [kind for kind in SOURCE_SETTINGS if kind in source]
    if len(kinds) != 1:
        raise ValueError(
            f"the source of `{name}` must have one of the keys {list(SOURCE_SETTINGS)}, got {dict(source)}"
        )
    unknown = source.keys() - {kinds[0]} - SOURCE_SETTINGS[kinds[0]] - COMMON_SETTINGS
    if unknown:
        allowed = sorted(SOURCE_SETTINGS[kinds[0]] | COMMON_SETTINGS)
        raise ValueError(f"the source of `{name}`: `{kinds[0]}` takes {allowed} beside it, got {sorted(unknown)}")
    return kinds[0]


def _embedded(source: Source, name: str, sizes: dict[str, int], languages: Pair, streaming: bool) -> Any:
    """One part of the corpus; validation and test are drawn before train, so that the parts are disjoint."""
    if not isinstance(source["embedded"], int):
        raise ValueError(f"`embedded` is a number of sentence pairs, got {source['embedded']!r}")
    if set(languages) != {"en", "de"}:
        raise ValueError(f"the embedded corpus has the languages en and de, got {languages[0]} and {languages[1]}")
    if name not in ("train", "validation", "test"):
        raise ValueError(f"the embedded corpus has the parts train, validation and test, got `{name}`")
    wanted = {part: sizes.get(part, default) for part, default in (("validation", 500), ("test", 1000))}
    corpus = embedded_corpus(train=sizes[name] if name == "train" else 0, **wanted, seed=source.get("seed", 0))
    part = _with_translation(corpus[name], *languages)
    return part.to_iterable_dataset() if streaming else part


def _load_hub(
    source: Source, name: str, languages: Pair, streaming: bool, num_proc: int | None, allow_empty: bool
) -> Any:
    dataset = load_dataset(
        source["hub"],
        source.get("config"),
        split=source.get("split", name),
        revision=source.get("revision"),
        streaming=streaming,
        num_proc=None if streaming else num_proc,
    )
    return _checked(dataset, f"data set {source['hub']}", languages, allow_empty)


def _load_files(
    source: Source, name: str, languages: Pair, streaming: bool, num_proc: int | None, allow_empty: bool
) -> Any:
    kind = _kind(source, name)
    if kind == "parquet":
        files = _existing(source["parquet"])
        dataset = load_dataset("parquet", data_files=files, split="train", streaming=streaming)
        return _checked(_with_translation(dataset, *languages, files[0]), files[0], languages, allow_empty)
    if kind == "text":
        sides = source["text"]
        if isinstance(sides, str) or len(sides) != 2:
            raise ValueError(f"`text` of `{name}` must be a file for {languages[0]} and one for {languages[1]}")
        shards = [tuple(_existing(side, patterns=False)[0] for side in sides)]
    else:
        shards = [(file,) for file in _existing(source[kind])]
    settings = {key: source[key] for key in SOURCE_SETTINGS[kind] & source.keys()}
    arguments = {
        "shards": shards,
        "kind": kind,
        "languages": languages,
        "settings": settings,
        "allow_empty": allow_empty,
        # datasets keeps what a generator gave under the name of its arguments: a changed file must not be taken for
        # the one that was read before
        "stamps": [[(os.path.getmtime(file), os.path.getsize(file)) for file in shard] for shard in shards],
    }
    features = Features({"translation": TranslationFeature(languages=list(languages))})
    if streaming:
        arguments.pop("stamps")
        return IterableDataset.from_generator(_generate, gen_kwargs=arguments | {"stamps": None}, features=features)
    processes = min(num_proc, len(shards)) if num_proc and num_proc > 1 else None
    try:
        return Dataset.from_generator(_generate, gen_kwargs=arguments, features=features, num_proc=processes)
    except DatasetGenerationError as error:
        cause: BaseException | None = error
        while cause is not None and not isinstance(cause, ValueError):
            cause = cause.__cause__ or cause.__context__
        raise (cause or error) from None


def _existing(pattern: str | os.PathLike[str] | list[str], patterns: bool = True) -> list[str]:
    """The files that a name, a pattern or a list of them stands for, in order."""
    if isinstance(pattern, list):
        return [file for entry in pattern for file in _existing(entry)]
    name = os.path.expanduser(os.fspath(pattern))
    if Path(name).is_file():
        return [name]
    files = sorted(glob.glob(name)) if patterns else []
    if not files:
        raise FileNotFoundError(f"no such file: {name}")
    return files


def _generate(
    shards: list[tuple[str, ...]],
    kind: str,
    languages: Pair,
    settings: dict[str, Any],
    allow_empty: bool,
    stamps: Any,
) -> Iterator[dict[str, dict[str, str]]]:
    for shard in shards:
        for source, target in READERS[kind](shard, languages, settings, allow_empty):
            yield {"translation": {languages[0]: source, languages[1]: target}}


# --------------------------------------------------------------------------------------------------------------- lines
def read_lines(file: str | os.PathLike[str]) -> Iterator[str]:
    """Yield the lines of a UTF-8 file, plain or .gz, without their ends and without a byte-order mark.

    Behaves like `evaluation.text_files.decode_lines`, which this room may not import: only a line feed ends a line,
    and text that is not UTF-8 or a damaged gzip file is an error that names the file and the line.
    """
    number = 0
    try:
        with _open(file) as stream:
            for number, line in enumerate(stream, start=1):
                text = line.removesuffix(b"\n").removesuffix(b"\r")
                try:
                    yield (text.removeprefix(b"\xef\xbb\xbf") if number == 1 else text).decode("utf-8")
                except UnicodeDecodeError as error:
                    raise ValueError(
                        f"{file}, line {number}: not UTF-8 ({error.reason} at byte {error.start})"
                    ) from None
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"{file}, after line {number}: the gzip file is damaged ({error})") from None


def _open(file: str | os.PathLike[str]) -> Any:
    return gzip.open(file, "rb") if os.fspath(file).endswith(".gz") else open(file, "rb")


def _require_text(pair: Pair, languages: Pair, places: Pair, allow_empty: bool) -> Pair:
    """Both sides have words, or the place of the one that has none is named."""
    if not allow_empty:
        for text, language, place in zip(pair, languages, places, strict=True):
            if not text.strip():
                raise ValueError(f"{place}: the {language} side is empty; `cleaning: {{drop_empty: true}}` drops such")
    return pair


def read_text(files: tuple[str, ...], languages: Pair, settings: dict[str, Any], allow_empty: bool) -> Iterator[Pair]:
    """Two files with a sentence per line, the same number in both."""
    source_file, target_file = files
    sources, targets = read_lines(source_file), read_lines(target_file)
    number = 0
    while True:
        source, target = next(sources, None), next(targets, None)
        if source is None or target is None:
            break
        number += 1
        places = (f"{source_file}, line {number}", f"{target_file}, line {number}")
        yield _require_text((source, target), languages, places, allow_empty)
    if source is not None or target is not None:
        short, long = (source_file, target_file) if source is None else (target_file, source_file)
        raise ValueError(f"{short} ends after line {number}, but {long} has a line {number + 1}")


def read_tsv(files: tuple[str, ...], languages: Pair, settings: dict[str, Any], allow_empty: bool) -> Iterator[Pair]:
    """Two columns of a file whose fields are what stands between tabs: a quote is a quote, and "NA" is a word."""
    (file,) = files
    columns = settings.get("columns", [0, 1])
    named = any(isinstance(column, str) for column in columns)
    header = settings.get("header", named)
    indices = columns
    for number, line in enumerate(read_lines(file), start=1):
        fields = line.split("\t")
        if number == 1 and header:
            if named:
                missing = [column for column in columns if column not in fields]
                if missing:
                    raise ValueError(f"{file}, line 1: no column {missing[0]!r}, the header has {fields}")
                indices = [fields.index(column) for column in columns]
            continue
        if max(indices) >= len(fields):
            raise ValueError(
                f"{file}, line {number}: {len(fields)} columns, but column {max(indices)} (from 0) is needed"
            )
        place = f"{file}, line {number}"
        source, target = (fields[index] for index in indices)
        yield _require_text((source, target), languages, (place, place), allow_empty)


def read_jsonl(files: tuple[str, ...], languages: Pair, settings: dict[str, Any], allow_empty: bool) -> Iterator[Pair]:
    """An object per line, with the two languages, or with a `translation` that has them."""
    (file,) = files
    for number, line in enumerate(read_lines(file), start=1):
        place = f"{file}, line {number}"
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise ValueError(f"{place}: not JSON ({error})") from None
        row = row.get("translation", row) if isinstance(row, dict) else None
        if not isinstance(row, dict):
            raise ValueError(f"{place}: an object is needed, with {languages[0]} and {languages[1]}, got {line[:60]}")
        for language in languages:
            if not isinstance(row.get(language), str):
                raise ValueError(f"{place}: no text {language!r}, the line has {sorted(row)}")
        source, target = (row[language] for language in languages)
        yield _require_text((source, target), languages, (place, place), allow_empty)


READERS: dict[str, Callable[..., Iterator[Pair]]] = {"text": read_text, "tsv": read_tsv, "jsonl": read_jsonl}


# -------------------------------------------------------------------------------------------------------------- tables
def _with_translation(dataset: Any, source: str, target: str, file: str = "") -> Any:
    """A data set with the column `translation` alone, of the two languages in this order."""
    columns = dataset.column_names or list(next(iter(dataset)))
    features = Features({"translation": TranslationFeature(languages=[source, target])})
    if "translation" not in columns:
        missing = [language for language in (source, target) if language not in columns]
        if missing:
            raise ValueError(f"{file}: no column `translation` and no column `{missing[0]}`, it has {columns}")

    def rows(batch: dict[str, list[Any]]) -> dict[str, list[Any]]:
        if "translation" in columns:
            pairs = [{language: pair.get(language) for language in (source, target)} for pair in batch["translation"]]
        else:
            pairs = [
                {source: first, target: second} for first, second in zip(batch[source], batch[target], strict=True)
            ]
        return {"translation": pairs}

    return dataset.map(rows, batched=True, remove_columns=columns, features=features)


def _checked(dataset: Any, place: str, languages: Pair, allow_empty: bool) -> Any:
    """Every row of a table has text on both sides; a stream is checked as it is read."""
    columns = dataset.column_names or list(next(iter(dataset)))
    if "translation" not in columns:
        raise ValueError(f"{place}: no column `translation`, it has {columns}")

    def check(batch: dict[str, list[Any]], indices: list[int]) -> dict[str, list[Any]]:
        pairs = []
        for index, pair in zip(indices, batch["translation"], strict=True):
            row = f"{place}, row {index + 1}"
            for language in languages:
                if not isinstance(pair.get(language), str):
                    raise ValueError(f"{row}: no text {language!r}, the row has {sorted(pair)}")
            source, target = (pair[language] for language in languages)
            _require_text((source, target), languages, (row, row), allow_empty)
            pairs.append({languages[0]: source, languages[1]: target})
        return {"translation": pairs}

    features = Features({"translation": TranslationFeature(languages=list(languages))})
    return dataset.map(check, batched=True, with_indices=True, remove_columns=columns, features=features)
