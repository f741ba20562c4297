"""The word aligner: its mathematics against brute force, and what it finds in text whose alignment is known."""

import itertools
import random

import numpy as np
import pytest

from capsule_mt.coverage.calibration import word_alignment
from capsule_mt.coverage.calibration.word_alignment import WordAligner, _Direction, digamma
from capsule_mt.coverage.calibration.words import split_words, word_stem


def made_up_text(sentences: int, seed: int = 0):
    """Text in a made-up language: words translated one by one, neighbours now and then swapped, fillers put in."""
    chance = random.Random(seed)
    words = [f"w{n}" for n in range(60)]
    pairs, gold = [], []
    for _ in range(sentences):
        source = [chance.choice(words) for _ in range(chance.randint(3, 9))]
        order = list(range(len(source)))
        for index in range(len(order) - 1):
            if chance.random() < 0.15:
                order[index], order[index + 1] = order[index + 1], order[index]
        target, links = [], set()
        for position in order:
            if chance.random() < 0.1:
                target.append("uh")
            links.add((position, len(target)))
            target.append(source[position].replace("w", "v"))
        pairs.append((source, target))
        gold.append(frozenset(links))
    return pairs, gold


def error_rate(predicted, gold):
    """The alignment error rate where every link is sure."""
    hits = sum(len(links & sure) for links, sure in zip(predicted, gold, strict=True))
    return 1 - 2 * hits / sum(map(len, (*predicted, *gold)))


def test_digamma():
    values = digamma(np.array([1.0, 0.5, 2.0, 10.0, 0.01]))
    expected = [-0.5772156649, -1.9635100260, 0.4227843351, 2.2517525891, -100.5608854579]
    np.testing.assert_allclose(values, expected, atol=1e-9)


def test_forward_backward_equals_the_sum_over_all_alignments(monkeypatch):
    monkeypatch.setattr(word_alignment, "NULL_PROBABILITY", 0.2)
    monkeypatch.setattr(word_alignment, "WIDEST_JUMP", 2)
    direction = _Direction(np.zeros(1, int), np.zeros(1, int), 1, 3, 0.01)
    chance = np.random.default_rng(0)
    lexical = chance.random((2, 4, 3))  # B = 2, J = 4 emitted words, I = 3 positions
    emitted = np.array([[0, 1, 2, 1], [2, 2, 0, 1]])
    direction.null = np.array([0.3, 0.1, 0.6, 0.0])
    direction.jumps = np.array([0.1, 0.4, 0.2, 0.7, 0.3])
    posteriors = direction.posteriors(lexical, emitted, hmm=True, count=True)

    move = np.array([[direction.jumps[min(max(j - i, -2), 2) + 2] for j in range(3)] for i in range(3)])
    move = move / move.sum(axis=1, keepdims=True)
    expected, jumps = np.zeros_like(posteriors), np.zeros(5)
    for sentence in range(2):
        total, linked_mass, jump_mass = 0.0, np.zeros((4, 3)), np.zeros(5)
        # a state is a position and whether the word is linked to it; an unlinked word remembers the position
        for states in itertools.product(itertools.product(range(3), (True, False)), repeat=4):
            probability = 1.0
            for step, (position, linked) in enumerate(states):
                if step == 0:
                    arrive = 1 / 3
                else:
                    previous = states[step - 1][0]
                    arrive = move[previous, position] if linked else float(previous == position)
                emit = (
                    0.8 * lexical[sentence, step, position]
                    if linked
                    else 0.2 * direction.null[emitted[sentence, step]]
                )
                probability *= arrive * emit
            total += probability
            for step, (position, linked) in enumerate(states):
                if linked:
                    linked_mass[step, position] += probability
                    if step:
                        jump_mass[min(max(position - states[step - 1][0], -2), 2) + 2] += probability
        expected[sentence] = linked_mass / total
        jumps += jump_mass / total
    np.testing.assert_allclose(posteriors, expected, atol=1e-12)
    np.testing.assert_allclose(direction.jump_counts, jumps, atol=1e-12)
    null_mass = np.bincount(emitted.ravel(), (1 - expected.sum(-1)).ravel(), minlength=4)
    np.testing.assert_allclose(direction.null_counts, null_mass, atol=1e-12)


def test_a_text_whose_alignment_is_known():
    pairs, gold = made_up_text(400)
    aligner = WordAligner(stem=str).fit(pairs)
    assert error_rate(aligner.align(pairs), gold) < 0.01
    unseen, unseen_gold = made_up_text(50, seed=1)
    assert error_rate(aligner.align(unseen), unseen_gold) < 0.03


def test_unknown_words_link_only_to_their_equals():
    pairs, _ = made_up_text(200)
    aligner = WordAligner(stem=str).fit(pairs)
    links = aligner.align([(["w1", "Obama", "unknown"], ["v1", "Obama", "other"])])[0]
    assert (0, 0) in links
    assert (1, 1) in links
    assert not any(2 in link for link in links)
    assert aligner.align([([], ["v1"]), (["w1"], ["v1"])]) == [frozenset(), frozenset({(0, 0)})]


def test_words():
    assert split_words("L'eau, 3,5 l. Mr. O'Neil's") == [
        "L'", "eau", ",", "3,5", "l", ".", "Mr", ".", "O'", "Neil'", "s",
    ]  # fmt: skip
    assert split_words("qu\u2019il va au lac") == ["qu'", "il", "va", "au", "lac"]
    assert (word_stem("Houses"), word_stem("2001,5"), word_stem("Öl")) == ("hous", "2001,5", "öl")


def test_a_pair_too_long_to_align_is_named():
    """Its arrays are as large as the square of its words."""
    aligner, long = WordAligner().fit([(["a"], ["b"])]), ["word"] * 2001
    for pair in ((long, ["b"]), (["a"], long)):
        for align in (aligner.align, aligner.posteriors, WordAligner().fit):
            with pytest.raises(ValueError, match=r"pair 2 has .*2001.* words; the aligner takes at most 2000 a side"):
                align([(["a"], ["b"]), pair])
    assert len(aligner.align([(["a"] * 2000, ["b"])])) == 1
