"""Where pairs come from, and which are kept."""

import functools
import gzip
import json

import pytest
from datasets import Dataset, DatasetDict

from hf_capsule_mt.data import Cleaning, clean, load_translation_data


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")


def write(folder, name, text):
    data = text if isinstance(text, bytes) else text.encode("utf-8")
    file = folder / name
    file.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return str(file)


def load(source, **settings):
    corpus = load_translation_data({"train": source}, "de", "en", **settings)
    rows = list(corpus["train"])
    assert all(list(row) == ["translation"] and list(row["translation"]) == ["de", "en"] for row in rows)
    return [(row["translation"]["de"], row["translation"]["en"]) for row in rows]


def test_lines_end_in_line_feeds_only(tmp_path):
    german = "eins\u2028zwei\ndrei\x0bvier\x85\r\nfünf\x1c"
    english = "one two\nthree four\nfive\n"
    expected = [("eins\u2028zwei", "one two"), ("drei\x0bvier\x85", "three four"), ("fünf\x1c", "five")]
    for ending in ("", ".gz"):
        files = [write(tmp_path, f"a.de{ending}", german), write(tmp_path, f"a.en{ending}", english)]
        assert load({"text": files}) == expected


def test_tsv_knows_no_quotes_and_no_missing_values(tmp_path):
    file = write(tmp_path, "a.tsv", "NA\tnull\tx\n\"halb\t'\tx\nnan\tNA\tx\n")
    assert load({"tsv": file}) == [("NA", "null"), ('"halb', "'"), ("nan", "NA")]
    named = write(tmp_path, "b.tsv", "id\ten\tde\n1\tone\teins\n")
    assert load({"tsv": named, "columns": ["de", "en"]}) == [("eins", "one")]


def test_jsonl_and_patterns(tmp_path):
    pair = {"de": "eins", "en": "one"}
    write(tmp_path, "part-1.jsonl", json.dumps(pair) + "\n")
    write(tmp_path, "part-2.jsonl.gz", json.dumps({"index": 3, "translation": pair}) + "\n")
    assert load({"jsonl": str(tmp_path / "part-*.jsonl*")}, num_proc=2) == [("eins", "one")] * 2
    Dataset.from_dict({"en": ["one"], "de": ["eins"]}).to_parquet(tmp_path / "parquet" / "train.parquet")
    assert load({"hub": str(tmp_path / "parquet")}) == [("eins", "one")]


def test_a_local_copy_of_a_data_set_of_the_hub(tmp_path):
    folder = tmp_path / "wmt" / "wmt14"
    for split, size in (("train", 3), ("validation", 2), ("test", 1)):
        rows = {"translation": [{"de": f"Satz {number}", "en": f"sentence {number}"} for number in range(size)]}
        Dataset.from_dict(rows).to_parquet(folder / "de-en" / f"{split}-00000-of-00001.parquet")
    card = "---\nconfigs:\n- config_name: de-en\n  data_files:\n" + "".join(
        f"  - split: {split}\n    path: de-en/{split}-*\n" for split in ("train", "validation", "test")
    )
    (folder / "README.md").write_text(card + "---\n", encoding="utf-8")
    sources = {name: {"hub": str(folder), "config": "de-en"} for name in ("train", "validation", "test")}
    corpus = load_translation_data(sources, "en", "de")
    assert isinstance(corpus, DatasetDict)
    assert {name: len(part) for name, part in corpus.items()} == {"train": 3, "validation": 2, "test": 1}
    assert corpus["train"][2] == {"translation": {"en": "sentence 2", "de": "Satz 2"}}


def test_a_changed_file_is_read_again(tmp_path):
    files = [write(tmp_path, "a.de", "eins\n"), write(tmp_path, "a.en", "one\n")]
    assert load({"text": files}) == [("eins", "one")]
    write(tmp_path, "a.de", "einser\n")
    assert load({"text": files}) == [("einser", "one")]


@pytest.mark.parametrize(
    ("german", "english", "message"),
    [
        ("eins\nzwei\n", "one\n", r"a\.en ends after line 1, but .*a\.de has a line 2"),
        ("eins\n", "one\ntwo\n", r"a\.de ends after line 1, but .*a\.en has a line 2"),
        ("eins\n \n", "one\ntwo\n", r"a\.de, line 2: the de side is empty"),
        (b"eins\nzw\xe4i\n", "one\ntwo\n", r"a\.de, line 2: not UTF-8 \(invalid continuation byte at byte 2\)"),
    ],
)
def test_broken_text(tmp_path, german, english, message):
    files = [write(tmp_path, "a.de", german), write(tmp_path, "a.en", english)]
    with pytest.raises(ValueError, match=message):
        load({"text": files})


@pytest.mark.parametrize(
    ("kind", "text", "settings", "message"),
    [
        ("tsv", "eins\tone\nzwei\n", {}, r"a\.tsv, line 2: 1 columns, but column 1"),
        ("tsv", "de\ten\n", {"columns": ["de", "fr"]}, r"a\.tsv, line 1: no column 'fr', the header has"),
        ("tsv", "eins\tone\n\ttwo\n", {}, r"a\.tsv, line 2: the de side is empty"),
        ("jsonl", '{"de": "eins", "en": "one"}\n{"de": "zwei"}\n', {}, r"a\.jsonl, line 2: no text 'en'"),
        ("jsonl", '{"de": "eins", "en": "one"}\n{"de":\n', {}, r"a\.jsonl, line 2: not JSON"),
        ("jsonl", "[1]\n", {}, r"a\.jsonl, line 1: not an object with"),
    ],
)
def test_broken_tables(tmp_path, kind, text, settings, message):
    with pytest.raises(ValueError, match=message):
        load({kind: write(tmp_path, f"a.{kind}", text), **settings})


def test_several_sources_of_the_embedded_corpus():
    load = functools.partial(load_translation_data, source_language="en", target_language="de")
    assert len(load({"train": [{"embedded": 30}, {"embedded": 20}]})["train"]) == 50
    with pytest.raises(
        ValueError, match="22500 sentence pairs in all, got 500 for validation, 10 for test, 30000 for"
    ):
        load({"train": {"embedded": 30_000}, "test": {"embedded": 10}})


PAIRS = [
    ("ein Hund", "a dog"),
    ("", "nothing"),
    ("same", "same"),
    ("a b c d e f", "x"),
    ("ein Hund", "a dog"),
    ("one two three four five six seven", "eins zwei drei vier fünf sechs sieben"),
    ("a", "bc"),
    ("ab", "c"),
]


def dataset():
    return Dataset.from_dict({"translation": [{"de": german, "en": english} for german, english in PAIRS]})


def test_every_rule():
    rules = Cleaning(drop_empty=True, drop_identical=True, max_words=6, max_ratio=3, drop_duplicates=True)
    cleaned, dropped = clean(dataset(), rules, "de", "en")
    assert [tuple(pair.values()) for pair in cleaned["translation"]] == [PAIRS[0], PAIRS[6], PAIRS[7]]
    assert dropped == {
        "with an empty side": 1,
        "with identical sides": 1,
        "with a ratio of lengths above 3": 1,
        "seen before": 1,
        "with more than 6 words": 1,
    }
