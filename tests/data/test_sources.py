"""Where pairs come from, and which are kept."""

import functools
import gzip
import json

import pytest
from datasets import Dataset, DatasetDict

from hf_capsule_mt.data import Cleaning, clean, load_translation_data

pytestmark = pytest.mark.usefixtures("own_cache_of_datasets")


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


def test_csv_has_quotes_and_names_in_line_1(tmp_path):
    file = write(tmp_path, "a.csv", 'id,en,de\n1,"one, ""two""","eins\nzwei"\n2,NA,null\n')
    expected = [("eins\nzwei", 'one, "two"'), ("null", "NA")]
    assert load({"csv": file}) == expected
    assert load({"csv": write(tmp_path, "b.csv.gz", "x,y\nzwei,two\n"), "columns": ["x", "y"]}) == [("zwei", "two")]
    assert load({"csv": write(tmp_path, "c.csv", "drei,three\n"), "columns": [0, 1]}) == [("drei", "three")]


def test_parquet(tmp_path):
    pairs = {"german": ["eins", "zwei"], "english": ["one", "two"]}
    Dataset.from_dict(pairs).to_parquet(tmp_path / "a-1.parquet")
    Dataset.from_dict({"german": ["drei"], "english": ["three"]}).to_parquet(tmp_path / "a-2.parquet")
    expected = [("eins", "one"), ("zwei", "two"), ("drei", "three")]
    assert load({"parquet": str(tmp_path / "a-*.parquet"), "columns": ["german", "english"]}) == expected
    Dataset.from_dict({"en": ["one"], "de": ["eins"]}).to_parquet(tmp_path / "b.parquet")
    assert load({"parquet": str(tmp_path / "b.parquet")}) == expected[:1]
    Dataset.from_dict({"translation": [{"en": "one", "de": "eins"}]}).to_parquet(tmp_path / "c.parquet")
    assert load({"parquet": str(tmp_path / "c.parquet")}) == expected[:1]


def test_columns_of_a_data_set_of_the_hub_and_its_stream(tmp_path):
    rows = {"id": [1, 2, 3], "src": ["eins", "zwei", "drei"], "tgt": ["one", "two", "three"]}
    Dataset.from_dict(rows).to_parquet(tmp_path / "set" / "train.parquet")
    source = {"hub": str(tmp_path / "set"), "columns": ["src", "tgt"]}
    assert load(source) == [("eins", "one"), ("zwei", "two"), ("drei", "three")]
    assert load({**source, "streaming": True, "first": 2}) == [("eins", "one"), ("zwei", "two")]
    swapped = Dataset.from_dict({"de": ["one"], "en": ["eins"]})
    swapped.to_parquet(tmp_path / "swapped" / "train.parquet")
    assert load({"hub": str(tmp_path / "swapped"), "columns": ["en", "de"]}) == [("eins", "one")]
    with pytest.raises(ValueError, match=r"set: no column `de`, it has \['id', 'src', 'tgt'\]"):
        load({"hub": str(tmp_path / "set"), "columns": ["de", "tgt"]})
    with pytest.raises(ValueError, match=r"no column `translation` and no column `de`, .*; `columns` names others"):
        load({"hub": str(tmp_path / "set")})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"hub": "x", "streaming": True}, "`streaming` needs `first`"),
        ({"hub": "x", "columns": [0, 1]}, r"`columns` must be two names, .*got \[0, 1\]"),
        ({"parquet": "x", "columns": [0, 1]}, "`columns` must be two names"),
        ({"csv": "x", "columns": ["a"]}, "must have two entries"),
        ({"csv": None, "first": 1}, "must have one of the keys .*, got {'csv': None, 'first': 1}"),
        ({"csv": "x", "streaming": True, "first": 1}, "has no key `streaming`"),
        ({"jsonl": "x", "columns": ["a", "b"]}, "has no key `columns`"),
    ],
)
def test_settings_that_a_source_does_not_have(settings, message):
    with pytest.raises(ValueError, match=message):
        load(settings)


@pytest.mark.parametrize(
    ("rows", "settings", "message"),
    [
        ({"de": ["eins", None], "en": ["one", "two"]}, {}, r"a\.parquet, row 2: no text 'de', but None"),
        ({"de": ["eins", " "], "en": ["one", "two"]}, {}, r"a\.parquet, row 2: the de side is empty"),
        ({"x": ["eins"], "y": ["one"]}, {"columns": ["x", "z"]}, r"a\.parquet: no column 'z', it has \['x', 'y'\]"),
        ({"translation": [{"de": "eins"}]}, {}, r"a\.parquet, row 1: no text 'en'"),
        (None, {}, r"a\.parquet: not Parquet"),
    ],
)
def test_broken_parquet(tmp_path, rows, settings, message):
    if rows is None:
        write(tmp_path, "a.parquet", "no Parquet")
    else:
        Dataset.from_dict(rows).to_parquet(tmp_path / "a.parquet")
    with pytest.raises(ValueError, match=message):
        load({"parquet": str(tmp_path / "a.parquet"), **settings})


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
        ("csv", "de,fr\neins,un\n", {}, r"a\.csv, line 1: no column 'en', the header has"),
        ("csv", 'de,en\n"eins,one\n', {}, r"a\.csv, line 2: not CSV \(unexpected end of data\)"),
        ("csv", "de,en\neins\n", {}, r"a\.csv, line 2: 1 columns, but column 1"),
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
