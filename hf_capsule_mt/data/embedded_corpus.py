"""The embedded corpus: 22,500 English-German sentence pairs of a small grammar, well-formed and often absurd.

Translating them takes real reordering: German verbs come second in a main clause and last in a subordinate one, their
prefixes and participles close the clause, numbers are read from the units up, and articles, adjectives and verbs
agree. The grammar that wrote the file is in the repository at commit `22c480d5`.
"""

import gzip
import itertools
from collections.abc import Iterator
from pathlib import Path

from datasets import Dataset, DatasetDict

FILE = Path(__file__).with_name("embedded_corpus.tsv.gz")


def sentence_pairs() -> Iterator[tuple[str, str]]:
    """Yield pairs of an English and a German sentence; no sentence occurs twice."""
    with gzip.open(FILE, "rt", encoding="utf-8") as lines:
        for line in lines:
            english, german = line.rstrip("\n").split("\t")
            yield english, german


def embedded_corpus(train: int = 20_000, validation: int = 500, test: int = 1_000) -> DatasetDict:
    """Return three disjoint parts with the column `translation` of "en" and "de".

    Validation and test come first in the file, so they do not depend on the amount of training data.
    """
    pairs = list(sentence_pairs())
    sizes = {"validation": validation, "test": test, "train": train}
    for name, size in sizes.items():
        if type(size) is not int or size < 0:
            raise ValueError(f"`{name}` must be a whole number of at least 0, got {size!r}")
    if sum(sizes.values()) > len(pairs):
        requested = ", ".join(f"{size} for {name}" for name, size in sizes.items())
        raise ValueError(f"the embedded corpus has {len(pairs)} sentence pairs in all, got {requested}")
    remaining = iter(pairs)
    parts = {}
    for name, size in sizes.items():
        rows = [{"en": english, "de": german} for english, german in itertools.islice(remaining, size)]
        parts[name] = Dataset.from_dict({"translation": rows})
    return DatasetDict({name: parts[name] for name in ("train", "validation", "test")})
