"""Probes: the tasks by hand, classifiers that learn what there is to learn, the table."""

import itertools
import random
from dataclasses import replace

import pytest
import torch

from lab import probe, probing_tasks
from lab.probe import (
    ProbingSettings,
    encoders_of,
    mean_state,
    probing_table,
    random_batches,
    sentence_vectors,
    texts_of,
    train_on_vectors,
    train_with_encoder,
)
from lab.probing_tasks import (
    TASKS,
    ProbingTask,
    Word,
    coordinated_clauses,
    forms,
    invert_clauses,
    length_bin,
    make_tasks,
    number_of,
    read_treebank,
    replace_odd_word,
    swap_neighbours,
    tense,
    top_constituents,
    tree_depth,
)
from tests.fixtures.tiny import save_tiny_checkpoint, tiny_tokenizer

SENTENCE = """# text = Yesterday the old dogs were barking, and she closed the windows.
1\tYesterday\tyesterday\tNOUN\tNN\tNumber=Sing\t6\tobl:npmod\t_\t_
2\tthe\tthe\tDET\tDT\t_\t4\tdet\t_\t_
3\told\told\tADJ\tJJ\tDegree=Pos\t4\tamod\t_\t_
4\tdogs\tdog\tNOUN\tNNS\tNumber=Plur\t6\tnsubj\t_\t_
5\twere\tbe\tAUX\tVBD\tTense=Past|VerbForm=Fin\t6\taux\t_\t_
6\tbarking\tbark\tVERB\tVBG\tTense=Pres|VerbForm=Part\t0\troot\t_\t_
7-8\t,and\t_\t_\t_\t_\t_\t_\t_\t_
7\t,\t,\tPUNCT\t,\t_\t10\tpunct\t_\t_
8\tand\tand\tCCONJ\tCC\t_\t10\tcc\t_\t_
9\tshe\tshe\tPRON\tPRP\tNumber=Sing\t10\tnsubj\t_\t_
10\tclosed\tclose\tVERB\tVBD\tTense=Past|VerbForm=Fin\t6\tconj\t_\t_
11\tthe\tthe\tDET\tDT\t_\t12\tdet\t_\t_
12\twindows\twindow\tNOUN\tNNS\tNumber=Plur\t10\tobj\t_\t_
12.1\tghost\t_\t_\t_\t_\t_\t_\t_\t_
13\t.\t.\tPUNCT\t.\t_\t6\tpunct\t_\t_

1\tHe\the\tPRON\tPRP\tNumber=Sing\t2\tnsubj\t_\t_
2\tbuys\tbuy\tVERB\tVBZ\tTense=Pres|VerbForm=Fin\t0\troot\t_\t_
3\ta\ta\tDET\tDT\t_\t4\tdet\t_\t_
4\thouse\thouse\tNOUN\tNN\tNumber=Sing\t2\tobj\t_\t_
5\t.\t.\tPUNCT\t.\t_\t2\tpunct\t_\t_
"""


@pytest.fixture
def sentences(tmp_path):
    (tmp_path / "train.conllu").write_text(SENTENCE)
    return read_treebank(tmp_path / "train.conllu")


def test_reading(sentences, tmp_path):
    long, short = sentences
    assert forms(long)[6:9] == (",", "and", "she")
    assert len(long) == 13
    assert long[0].relation == "obl"
    assert short[1] == Word("buys", "VERB", "VBZ", {"Tense": "Pres", "VerbForm": "Fin"}, 0, "root")
    (tmp_path / "bad.conllu").write_text("1\tHe\n")
    with pytest.raises(ValueError, match=r"bad\.conllu:1: a word has 10 columns, got 2"):
        read_treebank(tmp_path / "bad.conllu")


def test_properties_by_hand(sentences):
    long, short = sentences
    assert (length_bin(long), length_bin(short)) == ("13-16", "05-08")
    assert (tree_depth(long), tree_depth(short)) == (3, 2)  # barking > closed > windows > the
    assert (top_constituents(long), top_constituents(short)) == ("PP NP VP CONJ", "NP VP")
    assert (tense(long), tense(short)) == ("Past", "Pres")  # of "were", not of "barking"
    assert (number_of(long, "nsubj"), number_of(short, "nsubj")) == ("Plur", None)  # a pronoun is not a noun
    assert (number_of(long, "obj"), number_of(short, "obj")) == (None, "Sing")


def test_swapped_neighbours(sentences):
    original = forms(sentences[0])
    examples = {swap_neighbours(sentences[0], random.Random(seed)) for seed in range(40)}
    assert {label for _, label in examples} == {"inverted", "original"}
    for words, label in examples:
        moved = [index for index in range(13) if words[index] != original[index]]
        if label == "original":
            assert moved == []
        else:
            assert len(moved) == 2
            assert moved[1] == moved[0] + 1
            assert not {",", "."} & {original[index] for index in moved}


def test_inverted_clauses(sentences):
    assert coordinated_clauses(sentences[1]) is None
    assert coordinated_clauses(sentences[0]) == (
        ["Yesterday", "the", "old", "dogs", "were", "barking"],
        [",", "and"],
        ["she", "closed", "the", "windows"],
        ["."],
    )
    examples = {invert_clauses(sentences[0], random.Random(seed)) for seed in range(20)}
    assert {(" ".join(words), label) for words, label in examples} == {
        ("Yesterday the old dogs were barking , and she closed the windows .", "original"),
        ("She closed the windows , and yesterday the old dogs were barking .", "inverted"),
    }


def test_an_odd_word_has_the_same_tag(sentences):
    by_tag = {"NN": [f"thing{n}" for n in range(30)]}
    examples = {replace_odd_word(sentences[1], by_tag, random.Random(seed)) for seed in range(40)}
    for words, label in examples:
        assert words[:3] == ("He", "buys", "a")
        assert (words[3] == "house") == (label == "original")
        assert words[3] == "house" or words[3].startswith("thing")
    assert len(examples) > 3
    assert replace_odd_word(sentences[1], {"NN": ["house"]}, random.Random(0)) is None


def made_up_treebank(sentences: int, seed: int) -> list:
    """Sentences "the NOUN VERB the NOUN ." now and then followed by ", and the NOUN VERB the NOUN"."""
    chance = random.Random(seed)

    def clause(start: int, head: int, relation: str) -> list[Word]:
        numbers = [chance.choice(("Sing", "Plur")) for _ in range(2)]
        endings = ["s" if number == "Plur" else "" for number in numbers]
        past = chance.random() < 0.5
        verb = Word(
            f"verb{chance.randrange(40)}{'ed' if past else 's'}", "VERB", "VBD" if past else "VBZ",
            {"Tense": "Past" if past else "Pres", "VerbForm": "Fin"}, head, relation,
        )  # fmt: skip
        nouns = [
            Word(
                f"noun{chance.randrange(60)}{end}", "NOUN", "NNS" if end else "NN", {"Number": number}, start + 3, name
            )
            for end, number, name in zip(endings, numbers, ("nsubj", "obj"), strict=True)
        ]
        return [
            Word("the", "DET", "DT", {}, start + 2, "det"), nouns[0], verb,
            Word("the", "DET", "DT", {}, start + 5, "det"), nouns[1],
        ]  # fmt: skip

    result = []
    for _ in range(sentences):
        words = clause(0, 0, "root")
        if chance.random() < 0.5:
            middle = [Word(",", "PUNCT", ",", {}, 10, "punct"), Word("and", "CCONJ", "CC", {}, 10, "cc")]
            words += middle + clause(7, 3, "conj")
        if chance.random() < 0.5:
            words = [*words, Word(f"again{chance.randrange(3)}", "ADV", "RB", {}, 3, "advmod")]
        result.append((*words, Word(".", "PUNCT", ".", {}, 3, "punct")))
    return result


def test_all_tasks_of_a_treebank(monkeypatch):
    monkeypatch.setattr(probing_tasks, "WORDS", 5)
    treebank = {part: made_up_treebank(size, seed) for seed, (part, size) in
                enumerate({"train": 400, "validation": 60, "test": 60}.items())}  # fmt: skip
    tasks = make_tasks(treebank)
    assert [task.name for task in tasks] == list(TASKS)
    for task, again in zip(tasks, make_tasks(treebank), strict=True):
        assert task == again
        assert 2 <= len(task.classes) <= 20
        assert task.classes == tuple(sorted(task.classes))
        assert 0 < task.majority < 1
        for examples in task.parts.values():
            assert {label for _, label in examples} <= set(task.classes)
    by_name = {task.name: task for task in tasks}
    assert by_name["Tense"].classes == ("Past", "Pres")
    assert by_name["CoordInv"].classes == ("inverted", "original")
    assert len(by_name["WC"].classes) == 5
    for words, label in by_name["WC"].parts["train"]:
        assert label in {word.lower() for word in words}
    assert make_tasks(treebank, ["BShift"], seed=1) != [by_name["BShift"]]
    with pytest.raises(ValueError, match="got Colour"):
        make_tasks(treebank, ["Colour"])


def test_mean_state_leaves_padding_out():
    states = torch.tensor([[[1.0], [3.0], [100.0]]])
    assert mean_state(states, torch.tensor([[1, 1, 0]])).tolist() == [[2.0]]
    assert mean_state(states[:, :2], torch.tensor([[1, 1, 0]])).tolist() == [[2.0]]  # capsules, not words


SMALL = ProbingSettings(d_model=16, heads=2, hidden=32, epochs=30, learning_rate=3e-3, dropout=0.0, patience=30)


def noun_task() -> ProbingTask:
    """Is the sentence about a man or a dog?"""
    nouns, verbs = ["The man", "The dog"], ["sees the house", "buys the book", "is old", "sings in the garden"]
    examples = [((*f"{noun} {verb}".split(), "."), noun) for noun, verb in itertools.product(nouns, verbs)]
    return ProbingTask(
        "Noun", tuple(sorted(nouns)), {"train": examples * 12, "validation": examples, "test": examples}
    )


@pytest.mark.slow
@pytest.mark.parametrize("aggregation", probe.AGGREGATIONS)
def test_an_encoder_learns_with_each_aggregation(aggregation, monkeypatch):
    monkeypatch.setattr(probe, "BATCH_SIZE", 16)
    settings = replace(SMALL, epochs=6)
    result = train_with_encoder(noun_task(), aggregation, tiny_tokenizer(), 1, settings)
    assert result["accuracy"] == 1.0
    assert result["majority"] == 0.5
    assert (result["classes"], result["sentences"]["train"]) == (2, 96)


def test_a_checkpoint_is_probed_beside_an_untrained_encoder(tmp_path, monkeypatch):
    monkeypatch.setattr(probe, "BATCH_SIZE", 16)
    torch.manual_seed(0)
    checkpoint = save_tiny_checkpoint(tmp_path / "checkpoint", layer_aggregation="em_routing")
    files = {path.name: path.read_bytes() for path in checkpoint.iterdir()}
    task = noun_task()
    encoders = encoders_of(checkpoint)
    assert list(encoders) == ["checkpoint", "checkpoint, untrained"]
    vectors = [sentence_vectors(texts_of(task, "test"), *pair) for pair in encoders.values()]
    assert not torch.allclose(*(torch.stack(list(text_vectors.values())) for text_vectors in vectors))
    alone = sentence_vectors([(text := texts_of(task, "test")[0])], *encoders["checkpoint"])
    torch.testing.assert_close(alone[text], vectors[0][text], atol=1e-5, rtol=1e-4)  # padding changes nothing
    result = train_on_vectors(task, vectors[0], 1, SMALL)
    assert result["accuracy"] >= 0.75
    assert result == train_on_vectors(task, vectors[0], 1, SMALL)
    assert files == {path.name: path.read_bytes() for path in checkpoint.iterdir()}


def test_batches_hold_every_example_once_and_little_padding(monkeypatch):
    monkeypatch.setattr(probe, "BATCH_SIZE", 10)
    chance = random.Random(0)
    lengths = [chance.randrange(5, 30) for _ in range(999)]
    batches = [batch.tolist() for batch in random_batches(lengths, torch.Generator().manual_seed(1))]
    assert sorted(n for batch in batches for n in batch) == list(range(999))
    assert max(map(len, batches)) == 10
    assert sum(len(batch) * max(lengths[n] for n in batch) for batch in batches) < 1.15 * sum(lengths)
    assert batches != [batch.tolist() for batch in random_batches(lengths, torch.Generator().manual_seed(2))]


def test_trained_probes_are_not_trained_again(tmp_path):
    task, trained = noun_task(), []

    def train_probe(task, seed):
        trained.append(seed)
        return {"task": task.name, "seed": seed}

    for seeds in ([1], [1, 2]):
        probe.probe("plain", train_probe, [task], seeds, probe.ResultFile(tmp_path / "out.json", {"sentences": 9}))
    assert trained == [1, 2]
    with pytest.raises(SystemExit, match="was made with other settings"):
        probe.ResultFile(tmp_path / "out.json", {"sentences": 8})


def result(encoder: str, task: str, seed: int, accuracy: float) -> dict:
    sentences = {"train": 9, "validation": 9, "test": 1234}
    values = {"accuracy": accuracy, "majority": 0.25, "sentences": sentences}
    return {"encoder": encoder, "task": task, "seed": seed, **values}


def test_differences_in_the_table_are_of_the_same_seeds():
    results = [
        result("plain", "WC", 1, 0.50),
        result("plain", "WC", 2, 0.60),
        result("plain", "SentLen", 2, 0.40),
        result("em", "WC", 3, 0.99),
        result("em", "WC", 2, 0.63),
        result("em", "WC", 1, 0.51),
        result("em", "SentLen", 1, 0.80),
    ]
    assert probing_table(results).strip().splitlines() == [
        "| encoder | SentLen | WC |",  # in the order of the paper
        "|---|---|---|",
        "| commonest class | 25.0 | 25.0 |",
        "| test sentences | 1,234 | 1,234 |",
        "| plain | 40.0 | 55.0 ± 7.1 |",
        "| em | 80.0 | 71.0 ± 25.0 |",
        "| em against plain |  | +2.0 (p: 0.295) |",  # t = 2 with one degree of freedom: 1 - 2 / pi * atan(2)
    ]
