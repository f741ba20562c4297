"""References from which known words were dropped."""

from hf_capsule_mt.evaluation.omissions import AMOUNTS, drop_words, function_words

SOURCE = "Der alte Mann kauft einen Hut."
REFERENCE = "The old man buys a hat."
# Der-The alte-old Mann-man kauft-buys einen-a Hut-hat .-.
LINKS = frozenset((n, n) for n in range(7))


def test_every_amount_is_dropped():
    found = drop_words([SOURCE], [REFERENCE], [LINKS])
    assert [example.amount for example in found] == list(AMOUNTS)
    whole, one, two, half = found
    assert whole.translation == REFERENCE
    assert whole.translated_share == 1
    assert [sum(example.is_omitted.values()) for example in (one, two, half)] == [1, 2, 3]
    assert half.translated_share == 0.5
    pairs = dict(zip(SOURCE[:-1].split(), REFERENCE[:-1].split(), strict=True))
    for example in found:
        assert " ." not in example.translation
        for (start, end), is_omitted in example.is_omitted.items():
            assert (pairs[SOURCE[start:end]] in example.translation[:-1].split()) != is_omitted


def test_words_that_share_a_translation_go_together():
    # "kauft ... ein" is "buys": both are linked to it
    links = frozenset({(0, 0), (1, 1), (1, 2), (2, 1), (3, 3)})
    for example in drop_words(["er kauft ein viel"], ["he buys up much"], [links]):
        both = example.is_omitted[(3, 8)], example.is_omitted[(9, 12)]
        assert ("buys" in example.translation.split()) == (not any(both))
        assert both != (True, False)  # "buys up" is gone, so "ein" has no translation left


def test_short_sentences_are_left_out_and_function_words_do_not_count():
    assert drop_words(["Hut kaufen"], ["buy hat"], [frozenset({(0, 1), (1, 0)})]) == []
    text = [f"the {a}{b} {b}{a}a {b}{b}{a}b" for a in "cdefgh" for b in "jklmnop"]
    assert function_words(text) == {"the"}
    links = [frozenset((n, n) for n in range(4))] * len(text)
    assert all((0, 3) not in example.is_omitted for example in drop_words(text, text, links))
