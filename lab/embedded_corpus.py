"""Write the embedded corpus: English-German sentence pairs, drawn from a small grammar by seed.

    python -m lab.embedded_corpus    # hf_capsule_mt/data/embedded_corpus.tsv.gz

Translating it takes real reordering: German verbs come second in a main clause and last in a subordinate one, their
prefixes and participles close the clause, numbers are read from the units up, and articles, adjectives and verbs
agree. The sentences are well-formed and often absurd.
"""

import argparse
import gzip
import itertools
import random
from collections.abc import Iterator

from capsule_mt.commands.console import HelpFormatter
from hf_capsule_mt.data.embedded_corpus import FILE
from lab.embedded_grammar import (
    DER,
    Clause,
    NounPhrase,
    english_clause,
    english_question,
    english_rest,
    english_verb,
    german_main_clause,
    german_middle,
    german_question,
    german_subordinate_clause,
    german_verb,
    noun_phrase,
    random_clause,
)
from lab.embedded_lexicon import (
    ADJECTIVES_OF_PEOPLE,
    ADJECTIVES_OF_THINGS,
    COORDINATORS,
    PEOPLE,
    PLACES,
    SAYING,
    SUBORDINATORS,
    THINGS,
    TRANSITIVE,
)

# 20,000 for training, after the largest validation and test parts of the recipes and of `embedded_corpus`
NUM_PAIRS = 22_500


def _plain(chance: random.Random) -> tuple[str, str]:
    clause = random_clause(chance)
    return english_clause(clause) + ".", german_main_clause(clause) + "."


def _fronted(chance: random.Random) -> tuple[str, str]:
    clause = random_clause(chance)
    first = "time" if clause.time else "place" if clause.place else "subject"
    if first == "subject":
        return english_clause(clause) + ".", german_main_clause(clause) + "."
    adverbial = clause.time if first == "time" else clause.place
    auxiliary, verb = english_verb(clause)
    predicate = english_rest(clause, time=first != "time", place=first != "place")
    words = [adverbial[0] if adverbial else "", clause.subject.english, auxiliary, verb, *predicate]
    return " ".join(filter(None, words)) + ".", german_main_clause(clause, first) + "."


def _yes_no_question(chance: random.Random) -> tuple[str, str]:
    clause = random_clause(chance)
    return english_question(clause) + "?", german_question(clause) + "?"


def _question_with_word(chance: random.Random) -> tuple[str, str]:
    clause = random_clause(chance)
    questions = [name for name in ("time", "place") if getattr(clause, name)]
    if clause.direct and not clause.direct.pronoun and clause.verb in TRANSITIVE:
        questions.append("direct")
    if not questions:
        asked_subject = NounPhrase("who", {"nom": "wer"}, False, "m")
        clause = random_clause(chance, subject=asked_subject)
        return english_clause(clause) + "?", german_main_clause(clause) + "?"
    question = chance.choice(questions)
    english, german = {"time": ("when", "wann"), "place": ("where", "wo"), "direct": ("what", "was")}[question]
    return english_question(clause, english, **{question: False}) + "?", german_question(
        clause, german, **{question: False}
    ) + "?"


def _subordinate(chance: random.Random) -> tuple[str, str]:
    main, subordinate = random_clause(chance, adverbials=False), random_clause(chance, adverbials=False)
    english, german = chance.choice(SUBORDINATORS)
    if chance.random() < 0.5:
        return (
            f"{english_clause(main)} {english} {english_clause(subordinate)}.",
            f"{german_main_clause(main)}, {german} {german_subordinate_clause(subordinate)}.",
        )
    return (
        f"{english} {english_clause(subordinate)}, {english_clause(main)}.",
        f"{german} {german_subordinate_clause(subordinate)}, {german_question(main)}.",
    )


def _reported(chance: random.Random) -> tuple[str, str]:
    speaker = noun_phrase(chance, PEOPLE, ADJECTIVES_OF_PEOPLE)
    saying = Clause(speaker, chance.choice(SAYING), chance.choice(["present", "perfect"]))
    reported = random_clause(chance)
    return (
        f"{english_clause(saying)} that {english_clause(reported)}.",
        f"{german_main_clause(saying)}, dass {german_subordinate_clause(reported)}.",
    )


def _relative(chance: random.Random) -> tuple[str, str]:
    subject = noun_phrase(chance, PEOPLE, ADJECTIVES_OF_PEOPLE)
    inner, outer = (random_clause(chance, subject=subject, adverbials=False) for _ in range(2))
    finite, end = german_verb(outer)
    relative = german_subordinate_clause(inner, subject=DER["nom"][subject.form])
    subordinate = " ".join(filter(None, [finite, *german_middle(outer, None), end]))
    auxiliary, verb = english_verb(outer)
    predicate = " ".join(filter(None, [auxiliary, verb, *english_rest(outer)]))
    return (
        f"{english_clause(inner, subject=f'{subject.english} who')} {predicate}.",
        f"{subject.german['nom']}, {relative}, {subordinate}.",
    )


def _coordinated(chance: random.Random) -> tuple[str, str]:
    first, second = random_clause(chance, adverbials=False), random_clause(chance, adverbials=False)
    english, german = chance.choice(COORDINATORS)
    comma = "," if german == "aber" else ""
    return (
        f"{english_clause(first)}{comma} {english} {english_clause(second)}.",
        f"{german_main_clause(first)}{comma} {german} {german_main_clause(second)}.",
    )


def _predicative(chance: random.Random) -> tuple[str, str]:
    nouns, adjectives = chance.choice([(PEOPLE, ADJECTIVES_OF_PEOPLE), (THINGS, ADJECTIVES_OF_THINGS)])
    subject, adjective = noun_phrase(chance, nouns, adjectives), chance.choice(adjectives)
    place = chance.choice(PLACES) if chance.random() < 0.3 else ("", "")
    english = " ".join(filter(None, [subject.english, "are" if subject.plural else "is", adjective.english, place[0]]))
    words = [subject.german["nom"], "sind" if subject.plural else "ist", place[1]]
    return f"{english}.", " ".join(filter(None, [*words, adjective.german + adjective.predicative_ending])) + "."


PATTERNS = [
    (_plain, 20),
    (_fronted, 20),
    (_yes_no_question, 10),
    (_question_with_word, 10),
    (_subordinate, 15),
    (_reported, 10),
    (_relative, 10),
    (_coordinated, 5),
    (_predicative, 5),
]


def sentence_pairs(seed: int = 0) -> Iterator[tuple[str, str]]:
    """Yield endless pairs of an English and a German sentence, no two alike on either side."""
    chance = random.Random(seed)
    patterns, weights = zip(*PATTERNS, strict=True)
    sentences: set[str] = set()
    while True:
        english, german = chance.choices(patterns, weights)[0](chance)
        english, german = english[0].upper() + english[1:], german[0].upper() + german[1:]
        if english not in sentences and german not in sentences:
            sentences |= {english, german}
            yield english, german


def corpus_text() -> str:
    """Return the embedded corpus: lines of an English and a German sentence with a tab between them."""
    return "".join(f"{english}\t{german}\n" for english, german in itertools.islice(sentence_pairs(), NUM_PAIRS))


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=HelpFormatter).parse_args()
    FILE.write_bytes(gzip.compress(corpus_text().encode(), mtime=0))
    print(FILE)


if __name__ == "__main__":
    main()
