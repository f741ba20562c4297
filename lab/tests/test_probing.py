"""Probing: the tasks by hand, encoders that learn what there is to learn, the table."""

import itertools
import random
from dataclasses import replace

import pytest
import torch

from lab import probing_tasks
from lab.paper_tables import PROBING_TASKS
from lab.probing import (
    Accuracies,
    ProbingSettings,
    SentenceClassifier,
    _random_batches,
    mean_state,
    new_encoder,
    probe_checkpoint,
    probing_table,
    train_probe,
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
    assert (number_of(long, "nsubj"), number_of(short, "nsubj")) == ("Plur", None)  # a pronoun is no noun
    assert (number_of(long, "obj"), number_of(short, "obj")) == (None, "Sing")


def test_swapped_neighbours(sentences):
    original = forms(sentences[0])
    found = {swap_neighbours(sentences[0], random.Random(seed)) for seed in range(40)}
    assert {label for _, label in found} == {"inverted", "original"}
    for words, label in found:
        moved = [place for place in range(13) if words[place] != original[place]]
        if label == "original":
            assert moved == []
        else:
            assert len(moved) == 2
            assert moved[1] == moved[0] + 1
            assert not {",", "."} & {original[place] for place in moved}


def test_inverted_clauses(sentences):
    assert coordinated_clauses(sentences[1]) is None
    assert coordinated_clauses(sentences[0]) == (
        ["Yesterday", "the", "old", "dogs", "were", "barking"],
        [",", "and"],
        ["she", "closed", "the", "windows"],
        ["."],
    )
    found = {invert_clauses(sentences[0], random.Random(seed)) for seed in range(20)}
    assert {(" ".join(words), label) for words, label in found} == {
        ("Yesterday the old dogs were barking , and she closed the windows .", "original"),
        ("She closed the windows , and yesterday the old dogs were barking .", "inverted"),
    }


def test_an_odd_word_has_the_same_tag(sentences):
    by_tag = {"NN": [f"thing{n}" for n in range(30)]}
    found = {replace_odd_word(sentences[1], by_tag, random.Random(seed)) for seed in range(40)}
    for words, label in found:
        assert words[:3] == ("He", "buys", "a")
        assert (words[3] == "house") == (label == "original")
        assert words[3] == "house" or words[3].startswith("thing")
    assert len(found) > 3
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
    assert [task.name for task in tasks] == list(TASKS) == list(PROBING_TASKS)
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


SMALL = ProbingSettings(d_model=16, heads=2, hidden=32, epochs=6, batch_size=16, learning_rate=3e-3, dropout=0.0)


def counting_task() -> ProbingTask:
    """Whether the sentence is about a man or a dog: easy."""
    nouns, verbs = ["The man", "The dog"], ["sees the house", "buys the book", "is old", "sings in the garden"]
    examples = [((*f"{noun} {verb}".split(), "."), noun) for noun, verb in itertools.product(nouns, verbs)]
    return ProbingTask(
        "Noun", tuple(sorted(nouns)), {"train": examples * 12, "validation": examples, "test": examples}
    )


@pytest.mark.slow
@pytest.mark.parametrize("aggregation", ["concat", "simple_routing", "em_routing"])
def test_an_encoder_learns_with_each_aggregation(aggregation):
    tokenizer = tiny_tokenizer()
    result = train_probe(counting_task(), aggregation, tokenizer, 1, SMALL)
    assert result.accuracy == 1.0
    assert result.majority == 0.5
    assert (result.encoder, result.classes, result.sentences["train"]) == (aggregation, 2, 96)
    again = train_probe(counting_task(), aggregation, tokenizer, 1, SMALL)
    assert again == result


def test_padding_changes_nothing():
    tokenizer = tiny_tokenizer()
    torch.manual_seed(0)
    model = SentenceClassifier(new_encoder("em_routing", tokenizer, SMALL), 16, 2, 32, 0.0).eval()
    ids = torch.tensor([tokenizer("The man sees the house.")["input_ids"]])
    padded = torch.nn.functional.pad(ids, (0, 4), value=tokenizer.pad_token_id)
    mask = (torch.arange(padded.shape[1]) < ids.shape[1]).long().unsqueeze(0)
    torch.testing.assert_close(model(padded, mask), model(ids, torch.ones_like(ids)), atol=1e-5, rtol=1e-4)


def test_a_checkpoint_stays_as_it_is(tmp_path):
    torch.manual_seed(0)
    folder = save_tiny_checkpoint(tmp_path / "checkpoint", layer_aggregation="em_routing")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    told: list[str] = []
    settings = replace(SMALL, epochs=30, patience=30)
    first, second = probe_checkpoint([counting_task()], folder, [1, 2], settings, progress=told.append)
    assert (first.seed, second.seed) == (1, 2)
    assert min(first.accuracy, second.accuracy) >= 0.75
    assert first == next(iter(probe_checkpoint([counting_task()], folder, [1], settings)))
    assert len(told) == first.epochs + second.epochs
    assert before == {path.name: path.read_bytes() for path in folder.iterdir()}


def test_batches_hold_every_example_once_and_little_padding():
    chance = random.Random(0)
    lengths = [chance.randrange(5, 30) for _ in range(999)]
    batches = [batch.tolist() for batch in _random_batches(lengths, 10, torch.Generator().manual_seed(1))]
    assert sorted(n for batch in batches for n in batch) == list(range(999))
    assert max(map(len, batches)) == 10
    padded = sum(len(batch) * max(lengths[n] for n in batch) for batch in batches)
    assert padded < 1.15 * sum(lengths)
    others = [batch.tolist() for batch in _random_batches(lengths, 10, torch.Generator().manual_seed(2))]
    assert batches != others


def result(encoder: str, task: str, seed: int, accuracy: float) -> dict:
    return {"encoder": encoder, "task": task, "seed": seed, "accuracy": accuracy, "majority": 0.25,
            "sentences": {"train": 9, "validation": 9, "test": 1234}}  # fmt: skip


RESULTS = [
    result("outputs/plain", "WC", 1, 0.50),
    result("outputs/plain", "WC", 2, 0.60),
    result("outputs/plain", "SentLen", 2, 0.40),
    result("outputs/em", "WC", 3, 0.99),
    result("outputs/em", "WC", 2, 0.63),
    result("outputs/em", "WC", 1, 0.51),
    result("outputs/em", "SentLen", 1, 0.80),
    result("outputs/new", "SentLen", 2, 0.45),
]


def test_differences_are_of_the_same_seeds():
    found = Accuracies(RESULTS)
    assert found.encoders == ["outputs/plain", "outputs/em", "outputs/new"]
    assert found.of("outputs/em", "WC") == [99.0, 63.0, 51.0]
    assert found.of("outputs/new", "WC") == []
    assert [round(value, 9) for value in found.differences("outputs/em", "WC")] == [3.0, 1.0]
    assert found.differences("outputs/em", "SentLen") == []


def test_table():
    explanation, empty, *lines = probing_table(RESULTS).splitlines()
    assert "differences to the first encoder" in explanation
    assert empty == ""
    assert lines[0] == "| encoder | SentLen | WC |"  # in the order of the paper
    assert lines[2:] == [
        "| commonest class | 25.0 | 25.0 |",
        "| test sentences | 1,234 | 1,234 |",
        "| plain | 40.0 | 55.0 ± 7.1 |",
        "| em | 80.0 | 71.0 ± 25.0 |",
        "| new | 45.0 |  |",
        "| em against plain |  | +2.0 (p=0.295) |",  # t = 2 with one degree of freedom: 1 - 2 / pi * atan(2)
        "| new against plain | +5.0 |  |",
        "| paper: concat | 97.22 | 97.92 |",
        "| paper: simple_routing | 97.10 | 98.85 |",
        "| paper: em_routing | 96.26 | 98.75 |",
    ]
