"""Files of shortlists."""

import pytest

from capsule_mt.models.shortlist import FILE_NAME, Shortlist
from capsule_mt.models.weights import CheckpointError
from tests.light.models.files import read_header, write_file

SOME = Shortlist.of_translations({token: range(30 + token, 45 + token) for token in range(30)}, [3, 4, 5], (211, 211))


def test_the_tokens_of_a_source():
    assert SOME.of_source([5, 6, 5, 200], 0, -1) == [0, 3, 4, 5, *range(35, 51)]
    assert SOME.of_source([], 4) == [3, 4, 5]


def test_files(tmp_path):
    SOME.save(tmp_path / FILE_NAME)
    for path in (tmp_path, tmp_path / FILE_NAME):
        loaded = Shortlist.load(path)
        assert (loaded.starts, loaded.tokens, loaded.frequent) == (SOME.starts, SOME.tokens, SOME.frequent)
        assert loaded.vocabulary == 211
    with pytest.raises(FileNotFoundError, match="capsule-mt shortlist CHECKPOINT SOURCE TARGET"):
        Shortlist.load(tmp_path / "none")


def test_a_damaged_list_is_refused(tmp_path):
    starts, tokens, frequent = SOME.starts, SOME.tokens, SOME.frequent
    damages = [
        (starts, [10**8] * len(tokens), frequent),
        (starts, tokens, [-3]),
        ([start + 1 for start in starts], tokens, frequent),
        (starts, tokens[:-1], frequent),
        ([0, 450, *starts[2:]], tokens, frequent),
        ([], [], frequent),
    ]
    for damage in damages:
        with pytest.raises(ValueError, match="`shortlist` is damaged"):
            Shortlist(*damage, 211)
    with pytest.raises(ValueError, match="`shortlist` is for vocabularies of 211 and 211 tokens, but the model's are"):
        SOME.check(7, 211)
    file = tmp_path / FILE_NAME
    SOME.save(file)
    header, data = read_header(file)
    facts = {name: one for name, one in header.items() if name != "__metadata__"}
    for damaged, message in (
        (facts, "is not a shortlist"),
        (header | {"tokens": header["tokens"] | {"dtype": "F32"}}, "`tokens` must be a list of I32, got F32"),
    ):
        write_file(file, damaged, data)
        with pytest.raises(CheckpointError, match=rf"shortlist\.safetensors: {message}"):
            Shortlist.load(file)
