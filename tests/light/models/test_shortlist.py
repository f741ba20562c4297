"""Shortlists: the tokens of one source and of several, and their files."""

from array import array

import pytest

from capsule_mt.engine.request import joint_candidates
from capsule_mt.models.shortlist import FILE_NAME, Shortlist
from capsule_mt.models.weights import CheckpointError
from tests.light.models.files import read_header, write_file

SHORTLIST = Shortlist.of_translations(
    {token: range(30 + token, 45 + token) for token in range(30)}, [3, 4, 5], (211, 211)
)


def test_the_tokens_of_a_source():
    assert SHORTLIST.of_source([5, 6, 5, 200], 0, -1) == [0, 3, 4, 5, *range(35, 51)]
    assert SHORTLIST.of_source([], 4) == [3, 4, 5]


class OneByOne:
    """A shortlist that is asked for one source at a time."""

    def __init__(self, shortlist):
        self.of_source = shortlist.of_source


@pytest.mark.parametrize("vocabulary", [1, 63, 64, 65, 211, 70_000])
@pytest.mark.parametrize("multiple", [1, 8])
def test_the_tokens_of_several_sources(vocabulary, multiple):
    """C gives what Python gives, for tokens of two bytes and of four, also where too few are left for `multiple`."""
    last = vocabulary - 1
    translations = {token: [token * k % vocabulary for k in range(token % 40)] for token in range(0, vocabulary, 3)}
    shortlist = Shortlist.of_translations(translations, [0, last // 2], (vocabulary, vocabulary))
    shortlist.multiple = multiple
    sources = [[last], [], [last, 0, last // 3 * 3, *range(vocabulary)[:60:2]], [last // 2]]
    extra_tokens = [[], [0], [last, last, 0], [last // 2]]
    for count in (1, 2, len(sources)):
        together = joint_candidates(shortlist, sources[:count], extra_tokens[:count])
        expected = joint_candidates(OneByOne(shortlist), sources[:count], extra_tokens[:count])
        num_indices = sum(together.list_lengths)
        expected_indices = array("i", range(num_indices)) if expected.indices is None else expected.indices
        assert list(together.candidates) == list(expected.candidates)
        assert together.list_lengths == expected.list_lengths
        assert together.indices[:num_indices] == expected_indices


@pytest.mark.parametrize(
    ("sources", "extra_tokens", "message"),
    [
        ([[5], [211]], [[], []], "the source: token 211 is outside the vocabulary of 211"),
        ([[-1]], [[]], "the source: token -1 is outside the vocabulary of 211"),
        ([[5], [6]], [[0], [211]], "the shortlist: token 211 is outside the vocabulary of 211"),
    ],
)
def test_tokens_outside_of_the_vocabularies_are_refused(sources, extra_tokens, message):
    with pytest.raises(ValueError, match=f"the native engine refused: {message}"):
        SHORTLIST.of_sources(sources, extra_tokens)


def test_files(tmp_path):
    SHORTLIST.save(tmp_path / FILE_NAME)
    for path in (tmp_path, tmp_path / FILE_NAME):
        loaded = Shortlist.load(path)
        assert (loaded.starts, loaded.tokens, loaded.frequent) == (
            SHORTLIST.starts,
            SHORTLIST.tokens,
            SHORTLIST.frequent,
        )
        assert loaded.vocabulary == 211
    with pytest.raises(FileNotFoundError, match="capsule-mt shortlist CHECKPOINT SOURCE TARGET"):
        Shortlist.load(tmp_path / "none")


def test_a_damaged_list_is_refused(tmp_path):
    starts, tokens, frequent = SHORTLIST.starts, SHORTLIST.tokens, SHORTLIST.frequent
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
        SHORTLIST.check(7, 211)
    file = tmp_path / FILE_NAME
    SHORTLIST.save(file)
    header, data = read_header(file)
    facts = {name: fact for name, fact in header.items() if name != "__metadata__"}
    for damaged, message in (
        (facts, "is not a shortlist"),
        (header | {"tokens": header["tokens"] | {"dtype": "F32"}}, "`tokens` must be a list of I32, got F32"),
    ):
        write_file(file, damaged, data)
        with pytest.raises(CheckpointError, match=rf"shortlist\.safetensors: {message}"):
            Shortlist.load(file)
    first = header["starts"]["data_offsets"][0] + 4
    write_file(file, header, data[:first] + (450).to_bytes(4, "little") + data[first + 4 :])
    with pytest.raises(ValueError, match="`shortlist` is damaged: offsets that do not ascend"):
        Shortlist.load(file)
