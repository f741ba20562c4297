"""Load parallel text from files, the hub or the embedded corpus into a data set's `translation` column."""

import glob
import os
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from datasets import Dataset, DatasetDict, Features, concatenate_datasets, load_dataset
from datasets import Translation as TranslationFeature
from datasets.exceptions import DatasetGenerationError
from huggingface_hub.dataclasses import strict

from hf_capsule_mt.data.embedded_corpus import embedded_corpus
from hf_capsule_mt.data.readers import READERS, Pair, require_text
from hf_capsule_mt.data.settings import check_settings, limited, nearest, refuse_unknown

Source = Mapping[str, Any]
Files = str | os.PathLike | list  # a file, a pattern, or several


def _check_pair(value: Any) -> None:
    if value is not None and len(value) != 2:
        raise ValueError("must have two entries, one for each language")


@strict
@dataclass
class SourceSettings:
    """The keys of a source: one names its kind, the others are settings of this kind."""

    hub: str | None = None
    config: str | None = None
    split: str | None = None
    revision: str | None = None
    streaming: bool | None = None
    text: list | tuple | None = field(default=None, metadata={"validator": [_check_pair]})
    tsv: Files | None = None
    columns: list | tuple | None = field(default=None, metadata={"validator": [_check_pair]})
    csv: Files | None = None
    jsonl: Files | None = None
    parquet: Files | None = None
    embedded: int | None = limited(1)
    first: int | None = limited(1)

    def validate_streaming(self) -> None:
        if self.streaming and self.first is None:
            raise ValueError(
                "`streaming` needs `first`, the number of pairs to take: training begins once all are read"
            )

    def validate_columns(self) -> None:
        names = [column for column in self.columns or () if not isinstance(column, str)]
        if names and (self.hub or self.parquet):
            raise ValueError(f"`columns` must be two names, as columns have no numbers here, got {self.columns!r}")


# the keys that name a kind, each with its settings; every kind also takes `first`
KINDS = {
    "hub": ("config", "split", "revision", "columns", "streaming"),
    "text": (),
    "tsv": ("columns",),
    "csv": ("columns",),
    "jsonl": (),
    "parquet": ("columns",),
    "embedded": (),
}


def check_sources(sources: Any, section: str) -> list[Source]:
    """Return sources as a list, without keys that are null; raise an error for anything that is not a source.

    Args:
        section: where the recipe has them, such as "data.train".
    """
    listed = sources if isinstance(sources, (list, tuple)) else [sources]
    for source in listed:
        if not isinstance(source, Mapping):
            raise ValueError(
                f"`{section}` must be a source, such as {{tsv: corpus.tsv}}, or a list of them, got {source!r}"
            )
        kinds = [kind for kind in KINDS if kind in source]
        if len(kinds) != 1 or source[kinds[0]] is None:
            hints = [] if kinds else [hint for key in source if (hint := nearest(key, KINDS))]
            hint = hints[0] if hints else ""
            raise ValueError(f"`{section}` must have one of the keys {', '.join(KINDS)}, got {dict(source)}{hint}")
        refuse_unknown(source, (*kinds, *KINDS[kinds[0]], "first"), f"`{section}`")
        check_settings(SourceSettings, source, section)
    return [{key: value for key, value in source.items() if value is not None} for source in listed]


def load_translation_data(
    parts: Mapping[str, Source | list[Source]],
    source_language: str,
    target_language: str,
    *,
    num_proc: int | None = None,
    allow_empty: Container[str] = (),
    other_parts: Mapping[str, Source | list[Source]] | None = None,
) -> DatasetDict:
    """Load parts such as "train" and "validation", each from one source or from the concatenation of several.

    A source is a mapping with one of these keys; `first: n` takes the first n pairs of any source.

    | key | value | further settings |
    |---|---|---|
    | `hub` | a data set or a folder, with the column `translation` or both languages | `config`, `split`, `revision`,
      `columns`: two names; `streaming: true`: read the `first` pairs without downloading all |
    | `text` | `[source file, target file]`, a sentence per line | |
    | `tsv` | file | `columns`: two numbers from 0 (default `[0, 1]`), or two names in line 1 |
    | `csv` | file with commas and quotes | `columns`: as of `tsv` (default: the languages, in line 1) |
    | `jsonl` | file, each line with `translation`, or with the two languages | |
    | `parquet` | file with the column `translation` or both languages | `columns`: two names |
    | `embedded` | number of sentence pairs of the embedded corpus, English and German | |

    Files but Parquet may end in .gz; all but `text` take patterns (`part-*.jsonl`). A line that is not a pair raises
    an error that names the file and the line.

    Parts of the embedded corpus are disjoint, because validation comes first, then test, then train. Name the same
    sizes of validation and test (by default 500 and 1,000) in every call: training data loaded with a smaller test
    part contain sentences of a larger one.

    Args:
        num_proc: the number of processes that read a source of several files, or download one from the hub.
        allow_empty: names of parts that keep pairs with an empty side, for a cleaning that drops them.
        other_parts: parts that other calls load: training data do not have sentences of these parts of the embedded
            corpus.
    """
    loaded: dict[str, Any] = {}
    languages = (source_language, target_language)
    checked = {name: check_sources(sources, name) for name, sources in {**(other_parts or {}), **parts}.items()}
    sizes = _embedded_sizes(checked)
    for name in parts:
        pieces = []
        for source in checked[name]:
            (kind,) = KINDS.keys() & source.keys()
            if kind == "embedded":
                piece: Any = _embedded(source, name, sizes, languages)
            else:
                load = _load_hub if kind == "hub" else _load_files
                piece = load(source, name, languages, num_proc, name in allow_empty)
            pieces.append(piece.take(source["first"]) if "first" in source else piece)
        loaded[name] = concatenate_datasets(pieces) if len(pieces) > 1 else pieces[0]
    return DatasetDict(loaded)


def _embedded_sizes(parts: Mapping[str, list[Source]]) -> dict[str, int]:
    """Return how many sentences of the embedded corpus each part needs."""
    sizes = {}
    for name, sources in parts.items():
        if counts := [source["embedded"] for source in sources if "embedded" in source]:
            sizes[name] = max(counts)
    return sizes


def _embedded(source: Source, name: str, sizes: dict[str, int], languages: Pair) -> Dataset:
    """Load one part of the embedded corpus; validation and test come before train, so parts are disjoint."""
    if set(languages) != {"en", "de"}:
        raise ValueError(f"the embedded corpus has the languages en and de, got {languages[0]} and {languages[1]}")
    if name not in ("train", "validation", "test"):
        raise ValueError(f"the embedded corpus has the parts train, validation and test, got `{name}`")
    held_out = {part: sizes.get(part, default) for part, default in (("validation", 500), ("test", 1000))}
    corpus = embedded_corpus(train=sizes[name] if name == "train" else 0, **held_out)
    return _to_pairs(corpus[name].select(range(source["embedded"])), "the embedded corpus", languages)


def _load_hub(source: Source, name: str, languages: Pair, num_proc: int | None, allow_empty: bool) -> Dataset:
    streaming = source.get("streaming", False)
    dataset: Any = load_dataset(
        source["hub"],
        source.get("config"),
        split=source.get("split", name),
        revision=source.get("revision"),
        streaming=streaming,
        num_proc=None if streaming else num_proc,
    )
    if streaming:
        dataset = Dataset.from_list(list(dataset.take(source["first"])))
    return _to_pairs(dataset, f"data set {source['hub']}", languages, allow_empty, source.get("columns"))


def _load_files(source: Source, name: str, languages: Pair, num_proc: int | None, allow_empty: bool) -> Any:
    (kind,) = KINDS.keys() & source.keys()
    if kind == "text":
        shards = [tuple(existing_files(side, as_pattern=False)[0] for side in source["text"])]
    else:
        shards = [(file,) for file in existing_files(source[kind])]
    settings = {key: value for key, value in source.items() if key not in (kind, "first")}
    arguments: dict[str, Any] = {
        "shards": shards,
        "kind": kind,
        "languages": languages,
        "settings": settings,
        "allow_empty": allow_empty,
        # datasets caches a generator's rows by its arguments: stamps keep it from reusing the rows of a changed file
        "stamps": [[(os.path.getmtime(file), os.path.getsize(file)) for file in shard] for shard in shards],
    }
    if next(_generate(**arguments), None) is None:
        raise ValueError(f"`{name}`: no sentence pairs in {', '.join(' and '.join(shard) for shard in shards)}")
    features = Features({"translation": TranslationFeature(languages=list(languages))})
    processes = min(num_proc, len(shards)) if num_proc and num_proc > 1 else None
    try:
        return Dataset.from_generator(_generate, gen_kwargs=arguments, features=features, num_proc=processes)
    except DatasetGenerationError as error:
        cause: BaseException | None = error
        while cause is not None and not isinstance(cause, ValueError):
            cause = cause.__cause__ or cause.__context__
        raise (cause or error) from None


def existing_files(pattern: str | os.PathLike[str] | list[str], as_pattern: bool = True) -> list[str]:
    """Return the files that a name, a pattern or a list of them matches, in order."""
    if isinstance(pattern, list):
        return [file for entry in pattern for file in existing_files(entry)]
    name = os.path.expanduser(os.fspath(pattern))
    if Path(name).is_file():
        return [name]
    files = sorted(glob.glob(name)) if as_pattern else []
    if not files:
        raise FileNotFoundError(f"no such file: {name}")
    return files


def _generate(
    shards: list[tuple[str, ...]],
    kind: str,
    languages: Pair,
    settings: dict[str, Any],
    allow_empty: bool,
    stamps: list[list[tuple[float, int]]],
) -> Iterator[dict[str, dict[str, str]]]:
    for shard in shards:
        for pair, positions in READERS[kind](shard, languages, settings):
            source, target = pair if allow_empty else require_text(pair, languages, positions)
            yield {"translation": {languages[0]: source, languages[1]: target}}


def _to_pairs(
    dataset: Dataset, origin: str, languages: Pair, allow_empty: bool = False, named: Sequence[str] | None = None
) -> Dataset:
    """Return a data set with the column `translation` alone, checking every row.

    Args:
        named: the columns of both languages, if they have other names.
    """
    columns = dataset.column_names
    if named is not None:
        if missing := [name for name in named if name not in columns]:
            raise ValueError(f"{origin}: no column `{missing[0]}`, it has {columns}")
        dataset = dataset.select_columns(list(named)).rename_columns(dict(zip(named, languages, strict=True)))
        columns = list(languages)
    missing = [language for language in languages if language not in columns]
    if "translation" not in columns and missing:
        raise ValueError(
            f"{origin}: no column `translation` and no column `{missing[0]}`, it has {columns}; `columns` names others"
        )

    def rows(batch: dict[str, list[Any]], indices: list[int]) -> dict[str, list[dict[str, str]]]:
        translations = batch.get("translation") or [
            dict(zip(languages, pair, strict=True))
            for pair in zip(*(batch[language] for language in languages), strict=True)
        ]
        pairs = []
        for index, pair in zip(indices, translations, strict=True):
            row = f"{origin}, row {index + 1}"
            for language in languages:
                if not isinstance(pair.get(language), str):
                    raise ValueError(f"{row}: no text {language!r}, the row has {sorted(pair)}")
            source, target = (pair[language] for language in languages)
            if not allow_empty:
                require_text((source, target), languages, (row, row))
            pairs.append({languages[0]: source, languages[1]: target})
        return {"translation": pairs}

    features = Features({"translation": TranslationFeature(languages=list(languages))})
    return dataset.map(rows, batched=True, with_indices=True, remove_columns=columns, features=features)
