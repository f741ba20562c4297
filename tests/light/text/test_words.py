"""Words of source and translation, and the offsets of tokens for tokenizers that do not report them."""

import random
import unicodedata

from capsule_mt.text.sentences import Span
from capsule_mt.text.words import WordLists, locate_tokens, source_words, target_ends, words_of


def test_in_a_script_without_spaces_each_token_is_a_word():
    text = "他来了。"
    words = words_of(text, [(0, 1), (1, 3), (3, 4), None])
    assert [(text[span.start : span.end], tokens) for span, tokens in words] == [
        ("他", [0]),
        ("来了", [1]),
        ("。", [2]),
    ]


def test_source_words_have_their_properties_for_coverage():
    lists = WordLists(optional=frozenset({"the"}), function=frozenset({"of"}))
    the, man, preposition, mark = source_words(
        "The mans of.", [(0, 3), (4, 7), (7, 8), (9, 11), (11, 12)], [3, 4, 0, 5, 6], 0, lists
    )
    assert (the.is_optional, man.is_optional, preposition.is_function, mark.is_mark) == (True, False, True, True)
    assert (man.span, man.tokens, man.is_unknown, the.is_unknown) == (Span(4, 8), [1, 2], True, False)


def test_unknown_and_normalised_tokens_are_located():
    text = "The 老老老老老老老老老老老老 mans 🙂"
    offsets = locate_tokens(text, ["▁The", None, "▁man", "s", None, ""])
    assert [span and text[slice(*span)].strip() for span in offsets] == ["The", "老" * 12, "man", "s", "🙂", None]
    for text in ("one            two three", "one" + "\u200b" * 10 + " two three", "one \uff54wo \u2003 three"):
        offsets = locate_tokens(text, ["▁one", "▁two", "▁three", ""])
        assert text[slice(*offsets[2])] == "three"
    text = unicodedata.normalize("NFD", "한국어 번역 house")
    offsets = locate_tokens(text, ["▁한국", "어", "▁번", "역", "▁house"])
    assert [unicodedata.normalize("NFC", text[slice(*span)]) for span in offsets] == [
        "한국",
        "어",
        "번",
        "역",
        "house",
    ]


def test_target_ends_are_offsets_in_the_translation():
    pieces = ["Der", " alte", "", " Hut"]
    assert target_ends(lambda ids: "".join(pieces[id_] for id_ in ids), [0, 1, 2, 3]) == [3, 8, 8, 12]


def test_a_word_has_all_tokens_that_overlap_it():
    """Tokens may share characters, as the bytes of a letter do, or have none."""
    generator = random.Random(5)
    for _ in range(200):
        text = "".join(generator.choices("ab é-'.漢", k=30))
        offsets = [None]
        while (offsets[-1] or (0, 0))[1] < len(text):
            start = max(0, (offsets[-1] or (0, 0))[1] - generator.randrange(2))
            offsets.append((start, start + generator.randint(1, 4)))
        for (start, end), tokens in words_of(text, offsets):
            assert tokens == [
                index for index, span in enumerate(offsets) if span and span[0] < end and start < span[1]
            ]
