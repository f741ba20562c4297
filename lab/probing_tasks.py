"""The ten probing tasks of Conneau et al. 2018, made from a treebank of Universal Dependencies (Li et al. 2019, 5.1).

SentEval's data come from a constituency parser. What differs here:

- SentLen: SentEval's six bins of 5 to 28 words. All tasks but the last take sentences of 5 to 28 words.
- WC: which one of `WORDS` words a sentence has; SentEval has 1000 words, for 100,000 sentences.
- TreeDepth: the depth of the dependency tree, in `DEPTHS` classes. It is not made independent of the length.
- TopConst: a proxy. `top_constituents` guesses the top of the constituency tree from the dependents of the root: a
  subject is an NP, words after the root belong to its VP. The classes are the 19 most frequent sequences, and "other".
- BShift: two neighbouring words are swapped in half of the sentences.
- Tense: of the verb of the main clause, or of its auxiliary. Past or present.
- SubjNum, ObjNum: the number of the noun that is the subject, the direct object of the main clause.
- SOMO: in half of the sentences a noun or a verb is replaced by another of the same form (tag) and about the same
  frequency. SentEval also keeps the frequency of the two bigrams alike.
- CoordInv: the order of two coordinated clauses is inverted in half of the sentences, of up to 50 words: they are few.
"""

import os
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from capsule_mt.files.reading import read_lines

WORDS = 30
DEPTHS = 6
SHORTEST, LONGEST, LONGEST_COORDINATION = 5, 28, 50
LENGTH_BINS = (8, 12, 16, 20, 25, 28)
PARTS = ("train", "validation", "test")
SURFACE, SYNTACTIC, SEMANTIC = (
    ("SentLen", "WC"),
    ("TreeDepth", "TopConst", "BShift"),
    ("Tense", "SubjNum", "ObjNum", "SOMO", "CoordInv"),
)
TASKS = (*SURFACE, *SYNTACTIC, *SEMANTIC)


@dataclass(frozen=True)
class Word:
    """A line of a treebank; `head` counts words from 1, and is 0 at the root."""

    form: str
    part_of_speech: str
    tag: str
    features: dict[str, str]
    head: int
    relation: str


Sentence = tuple[Word, ...]
Example = tuple[tuple[str, ...], str]


@dataclass(frozen=True)
class ProbingTask:
    """Words and their class, in three parts; `majority` is the accuracy of the commonest class."""

    name: str
    classes: tuple[str, ...]
    parts: dict[str, list[Example]]

    @property
    def majority(self) -> float:
        counts = Counter(label for _, label in self.parts["train"])
        commonest = max(sorted(counts), key=counts.__getitem__)
        test = self.parts["test"]
        return sum(label == commonest for _, label in test) / len(test)


def read_treebank(path: str | os.PathLike[str]) -> list[Sentence]:
    """Return the sentences of a CoNLL-U file, without its contracted tokens and empty nodes."""
    sentences: list[Sentence] = []
    words: list[Word] = []
    for number, line in enumerate([*read_lines(path), ""], start=1):
        if not line.strip():
            if words:
                sentences.append(tuple(words))
            words = []
        elif not line.startswith("#"):
            columns = line.split("\t")
            if len(columns) != 10:
                raise ValueError(f"{path}:{number}: a word has 10 columns, got {len(columns)}")
            if columns[0].isdigit():
                words.append(_word(columns))
    return sentences


def _word(columns: list[str]) -> Word:
    features = dict(part.split("=", 1) for part in columns[5].split("|") if "=" in part)
    return Word(columns[1], columns[3], columns[4], features, int(columns[6]), columns[7].partition(":")[0])


def make_tasks(
    treebank: dict[str, Sequence[Sentence]], names: Sequence[str] = TASKS, seed: int = 0
) -> list[ProbingTask]:
    """Return tasks by name, made of the parts "train", "validation" and "test" of a treebank."""
    unknown = set(names) - set(TASKS)
    if unknown:
        raise ValueError(f"`names` must be of {', '.join(TASKS)}, got {', '.join(sorted(unknown))}")
    tasks = []
    for name in names:
        longest = LONGEST_COORDINATION if name == "CoordInv" else LONGEST
        parts = {
            part: [sentence for sentence in treebank[part] if SHORTEST <= len(sentence) <= longest] for part in PARTS
        }
        tasks.append(_make_task(name, parts, random.Random(f"{seed} {name}")))
    return tasks


def _make_task(name: str, parts: dict[str, list[Sentence]], chance: random.Random) -> ProbingTask:
    label = _labeller(name, parts["train"], chance)
    examples = {part: [example for sentence in parts[part] if (example := label(sentence))] for part in PARTS}
    classes = tuple(sorted({name_of_class for _, name_of_class in examples["train"]}))
    parts_of_task = {part: [example for example in examples[part] if example[1] in classes] for part in PARTS}
    for part, part_examples in parts_of_task.items():
        if not part_examples:
            raise ValueError(f"the {part} part of the treebank does not have a sentence for the task {name}")
    return ProbingTask(name, classes, parts_of_task)


def _labeller(name: str, train: list[Sentence], chance: random.Random) -> Callable[[Sentence], Example | None]:
    """Return a function from a sentence to an example, or to None where the task does not apply."""
    if name == "WC":
        targets = _content_words(train)
        return lambda sentence: _labelled(sentence, _only_one(sentence, targets))
    if name == "TopConst":
        common = {sequence for sequence, _ in _ranked(Counter(map(top_constituents, train)))[:19]}
        return lambda sentence: _labelled(
            sentence, sequence if (sequence := top_constituents(sentence)) in common else "other"
        )
    if name == "BShift":
        return lambda sentence: swap_neighbours(sentence, chance)
    if name == "SOMO":
        frequency = Counter((word.tag, word.form) for sentence in train for word in sentence)
        by_tag: dict[str, list[str]] = {}
        for (tag, form), _ in _ranked(frequency):  # commonest first: neighbours in the list are about as frequent
            by_tag.setdefault(tag, []).append(form)
        return lambda sentence: replace_odd_word(sentence, by_tag, chance)
    if name == "CoordInv":
        return lambda sentence: invert_clauses(sentence, chance)
    simple: dict[str, Callable[[Sentence], str | None]] = {
        "SentLen": length_bin,
        "TreeDepth": lambda sentence: str(min(tree_depth(sentence), DEPTHS + 1)),
        "Tense": tense,
        "SubjNum": lambda sentence: number_of(sentence, "nsubj"),
        "ObjNum": lambda sentence: number_of(sentence, "obj"),
    }
    return lambda sentence: _labelled(sentence, simple[name](sentence))


def _labelled(sentence: Sentence, label: str | None) -> Example | None:
    return None if label is None else (forms(sentence), label)


def forms(sentence: Sentence) -> tuple[str, ...]:
    return tuple(word.form for word in sentence)


def _ranked(counts: Counter[Any]) -> list[tuple[Any, int]]:
    """Sort counts, the commonest first, ties in alphabetical order."""
    return sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))


# ---- surface
def length_bin(sentence: Sentence) -> str:
    low = SHORTEST
    for high in LENGTH_BINS:
        if len(sentence) <= high:
            return f"{low:02d}-{high:02d}"
        low = high + 1
    raise ValueError(f"`sentence` must have at most {LONGEST} words, got {len(sentence)}")


def _content_words(train: list[Sentence]) -> set[str]:
    """Return words that are always nouns, verbs or adjectives: the commonest after the 50 commonest."""
    uses = [(word.form.lower(), word.part_of_speech) for sentence in train for word in sentence]
    function_words = {form for form, part_of_speech in uses if part_of_speech not in ("NOUN", "VERB", "ADJ")}
    counts = Counter(form for form, _ in uses if form not in function_words)
    skipped = min(50, max(len(counts) - WORDS, 0))
    return {form for form, _ in _ranked(counts)[skipped : skipped + WORDS]}


def _only_one(sentence: Sentence, targets: set[str]) -> str | None:
    present = {word.form.lower() for word in sentence} & targets
    return present.pop() if len(present) == 1 else None


# ---- syntactic
def root_of(sentence: Sentence) -> int:
    """Return the index of the root."""
    return next(index for index, word in enumerate(sentence) if word.head == 0)


def children_of(sentence: Sentence, parent: int) -> list[int]:
    return [index for index, word in enumerate(sentence) if word.head == parent + 1]


def tree_depth(sentence: Sentence) -> int:
    """Count the links from the root to the deepest word."""
    deepest = 0
    for word in sentence:
        depth = 0
        while word.head:
            word, depth = sentence[word.head - 1], depth + 1
        deepest = max(deepest, depth)
    return deepest


CONSTITUENTS = {
    **dict.fromkeys(("nsubj", "expl", "vocative"), "NP"),
    **dict.fromkeys(("csubj", "advcl", "parataxis"), "S"),
    **dict.fromkeys(("aux", "cop"), "AUX"),
    "obl": "PP",
    "advmod": "ADVP",
    "cc": "CC",
    "discourse": "INTJ",
}
PHRASES = {"NOUN": "NP", "PROPN": "NP", "PRON": "NP", "NUM": "NP", "ADJ": "ADJP", "ADV": "ADVP", "INTJ": "INTJ"}


def top_constituents(sentence: Sentence) -> str:
    """Return the constituents at the top of the sentence, as far as dependencies tell them: "ADVP NP VP".

    Each dependent to the left of the root, up to the subject, is a constituent. The others belong to the VP, except
    coordinated clauses with their own subject. A root without verb and copula is one phrase with its dependents.
    """
    root = root_of(sentence)
    children = children_of(sentence, root)
    relations = [sentence[child].relation for child in children]
    if sentence[root].part_of_speech not in ("VERB", "AUX") and not {"cop", "aux", "nsubj"} & set(relations):
        return PHRASES.get(sentence[root].part_of_speech, "X")
    constituents = []
    for child, relation in zip(children, relations, strict=True):
        if child < root and relation != "punct":
            constituents.append(CONSTITUENTS.get(relation, "X"))
            if constituents[-1] == "NP":
                break
    constituents.append("VP")
    conjuncts = [child for child in children if child > root and sentence[child].relation == "conj"]
    return " ".join([*constituents, *("CONJ" for conjunct in conjuncts if _has_subject(sentence, conjunct))])


def swap_neighbours(sentence: Sentence, chance: random.Random) -> Example | None:
    """Swap two neighbouring words in half of the sentences."""
    words = list(forms(sentence))
    indices = [
        index
        for index in range(len(words) - 1)
        if words[index].lower() != words[index + 1].lower()
        and "PUNCT" not in (sentence[index].part_of_speech, sentence[index + 1].part_of_speech)
    ]
    if not indices:
        return None
    index, inverted = chance.choice(indices), chance.random() < 0.5
    if inverted:
        words[index], words[index + 1] = words[index + 1], words[index]
    return tuple(words), "inverted" if inverted else "original"


# ---- semantic
def tense(sentence: Sentence) -> str | None:
    """Return the tense of the main clause's finite verb: the root, or its auxiliary."""
    root = root_of(sentence)
    if sentence[root].part_of_speech not in ("VERB", "AUX"):
        return None
    auxiliaries = [child for child in children_of(sentence, root) if sentence[child].relation in ("aux", "cop")]
    for index in (*auxiliaries, root):
        features = sentence[index].features
        if features.get("VerbForm") == "Fin" and features.get("Tense") in ("Past", "Pres"):
            return features["Tense"]
    return None


def number_of(sentence: Sentence, relation: str) -> str | None:
    """Return "Sing" or "Plur" of the one noun that has this relation to the root."""
    dependents = [child for child in children_of(sentence, root_of(sentence)) if sentence[child].relation == relation]
    if len(dependents) != 1 or sentence[dependents[0]].part_of_speech != "NOUN":
        return None
    number = sentence[dependents[0]].features.get("Number")
    return number if number in ("Sing", "Plur") else None


def replace_odd_word(sentence: Sentence, by_tag: dict[str, list[str]], chance: random.Random) -> Example | None:
    """Replace a noun or a verb by another of its tag and about its frequency, in half of the sentences."""
    words = list(forms(sentence))
    indices = [
        index
        for index, word in enumerate(sentence)
        if word.part_of_speech in ("NOUN", "VERB") and len(by_tag.get(word.tag, ())) > 20
    ]
    if not indices:
        return None
    index, odd = chance.choice(indices), chance.random() < 0.5
    if odd:
        candidates = by_tag[sentence[index].tag]
        rank = candidates.index(words[index]) if words[index] in candidates else len(candidates) - 1
        near = [form for form in candidates[max(rank - 10, 0) : rank + 11] if form.lower() != words[index].lower()]
        words[index] = chance.choice(near)
    return tuple(words), "odd" if odd else "original"


def invert_clauses(sentence: Sentence, chance: random.Random) -> Example | None:
    """Turn "A, and B." into "B, and A." in half of the sentences of two coordinated main clauses."""
    split = coordinated_clauses(sentence)
    if split is None:
        return None
    first, middle, second, end = split
    inverted = chance.random() < 0.5
    if inverted:  # and the capital letter moves, which would tell
        if sentence[0].part_of_speech != "PROPN" and first[0] != "I":
            first[0] = first[0][:1].lower() + first[0][1:]
        second[0] = second[0][:1].upper() + second[0][1:]
        first, second = second, first
    words = [*first, *middle, *second, *end]
    return tuple(words), "inverted" if inverted else "original"


def coordinated_clauses(sentence: Sentence) -> tuple[list[str], list[str], list[str], list[str]] | None:
    """Return the first clause, comma and conjunction, the second clause, and the final mark of "A, and B.".

    Both clauses have their own verb and subject, and nothing else is coordinated with the first. Otherwise None.
    """
    root = root_of(sentence)
    conjuncts = [child for child in children_of(sentence, root) if sentence[child].relation == "conj"]
    if len(conjuncts) != 1:
        return None
    verb = conjuncts[0]
    conjunctions = [child for child in children_of(sentence, verb) if sentence[child].relation == "cc"]
    if len(conjunctions) != 1 or not all(_has_subject(sentence, index) for index in (root, verb)):
        return None
    start = conjunctions[0]
    clause = [index for index in range(len(sentence)) if _is_under(sentence, index, verb)]
    last = max(clause)
    if start != min(index for index in clause if sentence[index].part_of_speech != "PUNCT"):
        return None
    end = list(range(last + 1, len(sentence)))
    if any(sentence[index].part_of_speech != "PUNCT" for index in end):
        return None
    comma = start - 1 if start and sentence[start - 1].part_of_speech == "PUNCT" else start
    if comma == 0:
        return None
    words = forms(sentence)
    return (
        list(words[:comma]),
        list(words[comma : start + 1]),
        list(words[start + 1 : last + 1]),
        [words[index] for index in end],
    )


def _has_subject(sentence: Sentence, index: int) -> bool:
    is_verb = sentence[index].part_of_speech in ("VERB", "AUX")
    return is_verb and any(sentence[child].relation == "nsubj" for child in children_of(sentence, index))


def _is_under(sentence: Sentence, index: int, ancestor: int) -> bool:
    while index != ancestor and sentence[index].head:
        index = sentence[index].head - 1
    return index == ancestor
