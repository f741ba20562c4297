"""The embedded corpus: English-German sentence pairs from a small grammar, as many as asked for, from a seed.

It is real translation with real reordering: German verbs come second in a main clause and last in a subordinate one,
their prefixes and participles close the clause, numbers are read from the units up, and articles, adjectives and verbs
agree. The sentences are well-formed and often absurd.
"""

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass

from datasets import Dataset, DatasetDict

from hf_capsule_mt.data.embedded_lexicon import (
    ADJECTIVES_OF_PEOPLE,
    ADJECTIVES_OF_THINGS,
    COORDINATORS,
    DITRANSITIVE,
    INTRANSITIVE,
    MODALS,
    PEOPLE,
    PLACES,
    POSSESSIVES,
    SAYING,
    SPANS,
    SUBORDINATORS,
    THINGS,
    TIMES,
    TRANSITIVE,
    TRANSITIVE_PEOPLE,
    Adjective,
    Noun,
    Verb,
)

# endings of der-words, of ein-words, and of adjectives after them, by case and by gender or plural (p)
DER = {
    "nom": {"m": "der", "f": "die", "n": "das", "p": "die"},
    "acc": {"m": "den", "f": "die", "n": "das", "p": "die"},
    "dat": {"m": "dem", "f": "der", "n": "dem", "p": "den"},
}
STRONG = {
    "nom": {"m": "er", "f": "e", "n": "es", "p": "e"},
    "acc": {"m": "en", "f": "e", "n": "es", "p": "e"},
    "dat": {"m": "em", "f": "er", "n": "em", "p": "en"},
}
EIN = {
    "nom": {"m": "", "f": "e", "n": "", "p": "e"},
    "acc": {"m": "en", "f": "e", "n": "", "p": "e"},
    "dat": {"m": "em", "f": "er", "n": "em", "p": "en"},
}
WEAK = {
    "nom": {"m": "e", "f": "e", "n": "e", "p": "en"},
    "acc": {"m": "en", "f": "e", "n": "e", "p": "en"},
    "dat": {"m": "en", "f": "en", "n": "en", "p": "en"},
}
MIXED = {
    "nom": {"m": "er", "f": "e", "n": "es", "p": "en"},
    "acc": {"m": "en", "f": "e", "n": "es", "p": "en"},
    "dat": {"m": "en", "f": "en", "n": "en", "p": "en"},
}

# numbers by value: 0 to 19, and the tens from 20
UNITS = [
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"),
    *("thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"),
]
TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
EINHEITEN = [
    *("null", "ein", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun", "zehn", "elf", "zwölf"),
    *("dreizehn", "vierzehn", "fünfzehn", "sechzehn", "siebzehn", "achtzehn", "neunzehn"),
]
ZEHNER = ["zwanzig", "dreißig", "vierzig", "fünfzig", "sechzig", "siebzig", "achtzig", "neunzig"]


def english_number(number: int) -> str:
    """2 to 999, as "two hundred and thirty-four"."""
    if number < 20:
        return UNITS[number]
    if number < 100:
        return TENS[number // 10 - 2] + (f"-{UNITS[number % 10]}" if number % 10 else "")
    rest = f" and {english_number(number % 100)}" if number % 100 else ""
    return f"{UNITS[number // 100]} hundred{rest}"


def german_number(number: int) -> str:
    """2 to 999, as "zweihundertvierunddreißig": one word, units before tens."""
    if number < 20:
        return EINHEITEN[number]
    if number < 100:
        return (f"{EINHEITEN[number % 10]}und" if number % 10 else "") + ZEHNER[number // 10 - 2]
    return f"{EINHEITEN[number // 100]}hundert" + (german_number(number % 100) if number % 100 else "")


@dataclass(frozen=True)
class NounPhrase:
    """A noun phrase or a pronoun: English, German by case, and what a verb or a relative pronoun agrees with."""

    english: str
    german: dict[str, str]
    plural: bool
    form: str  # gender, or p for plural
    english_object: str = ""
    pronoun: bool = False
    definite: bool = True


PRONOUNS = [
    NounPhrase("he", {"nom": "er", "acc": "ihn", "dat": "ihm"}, False, "m", "him", pronoun=True),
    NounPhrase("she", {"nom": "sie", "acc": "sie", "dat": "ihr"}, False, "f", "her", pronoun=True),
    NounPhrase("they", {"nom": "sie", "acc": "sie", "dat": "ihnen"}, True, "p", "them", pronoun=True),
    NounPhrase("we", {"nom": "wir", "acc": "uns", "dat": "uns"}, True, "p", "us", pronoun=True),
]


def noun_phrase(chance: random.Random, nouns: list[Noun], adjectives: list[Adjective]) -> NounPhrase:
    """An article, possessive or number, perhaps an adjective, and a noun."""
    noun = chance.choice(nouns)
    adjective = chance.choice(adjectives) if chance.random() < 0.4 else None
    kind = chance.choice(["the", "the", "a", "a", "this", "no", "possessive", "number", "some", "every"])
    plural = kind in ("number", "some") or (kind not in ("a", "every") and chance.random() < 0.35)
    form = "p" if plural else noun.gender
    possessive = chance.choice(POSSESSIVES)
    number = chance.choice([chance.randint(2, 19), chance.randint(20, 99), chance.randint(100, 999)])
    english_article, stem, articles, endings = {
        "the": ("the", "", DER, WEAK),
        "this": ("these" if plural else "this", "dies", STRONG, WEAK),
        "every": ("every", "jed", STRONG, WEAK),
        "a": ("a", "ein", EIN, MIXED),
        "no": ("no", "kein", EIN, MIXED),
        "possessive": (possessive[0], possessive[1], EIN, MIXED),
        "number": (english_number(number), german_number(number), None, STRONG),
        "some": ("some", "einig", STRONG, STRONG),
    }[kind]
    german = {}
    for case in ("nom", "acc", "dat"):
        article = stem + (articles[case][form] if articles else "")
        words = [article, *([adjective.german + endings[case][form]] if adjective else [])]
        german[case] = " ".join([*words, _declined(noun, case, plural)])
    rest = ([adjective.english] if adjective else []) + [noun.english_plural if plural else noun.english]
    if kind == "a" and rest[0][0] in "aeiou":
        english_article = "an"
    english = " ".join([english_article, *rest])
    return NounPhrase(english, german, plural, form, english, definite=kind not in ("a", "no", "some", "number"))


def _declined(noun: Noun, case: str, plural: bool) -> str:
    if not plural:
        return noun.german
    return noun.german_plural + ("n" if case == "dat" and noun.german_plural[-1] not in "ns" else "")


@dataclass(frozen=True)
class Clause:
    """What is said, before its words are put in an order."""

    subject: NounPhrase
    verb: Verb
    tense: str  # present, perfect, future, or a modal's index
    indirect: NounPhrase | None = None
    direct: NounPhrase | None = None
    time: tuple[str, str] | None = None
    place: tuple[str, str] | None = None
    negated: bool = False


def random_clause(chance: random.Random, subject: NounPhrase | None = None, adverbials: bool = True) -> Clause:
    def person() -> NounPhrase:
        return noun_phrase(chance, PEOPLE, ADJECTIVES_OF_PEOPLE)

    def thing() -> NounPhrase:
        return noun_phrase(chance, THINGS, ADJECTIVES_OF_THINGS)

    if subject is None:
        subject = chance.choice(PRONOUNS) if chance.random() < 0.2 else person()
    kind = chance.choice(["intransitive", "thing", "thing", "thing", "person", "both"])
    indirect = direct = None
    if kind == "intransitive":
        verb = chance.choice(INTRANSITIVE)
    elif kind == "thing":
        verb, direct = chance.choice(TRANSITIVE), thing()
    elif kind == "person":
        verb = chance.choice(TRANSITIVE_PEOPLE)
        direct = chance.choice(PRONOUNS) if chance.random() < 0.3 else person()
    else:
        verb, indirect, direct = chance.choice(DITRANSITIVE), person(), thing()
    tense = chance.choice(["present", "present", "perfect", "future", "modal"])
    if tense == "modal":
        tense = str(chance.randrange(len(MODALS)))
    time = place = None
    if adverbials and chance.random() < 0.4:
        time = chance.choice(TIMES)
        if tense == "future" and chance.random() < 0.4:
            number, span = chance.randint(2, 99), chance.choice(SPANS)
            time = (f"in {english_number(number)} {span[0]}", f"in {german_number(number)} {span[1]}")
    if adverbials and chance.random() < 0.3:
        place = chance.choice(PLACES)
    negatable = place is None and (direct is None or direct.definite) and (indirect is None or indirect.definite)
    negated = negatable and subject.definite and chance.random() < 0.15
    return Clause(subject, verb, tense, indirect, direct, time, place, negated)


# ------------------------------------------------------------------------------------------------------------- English
def _english_verb(clause: Clause) -> tuple[str, str]:
    """The auxiliary ("" in a plain present) and the rest of the verb, negation included."""
    verb, plural = clause.verb, clause.subject.plural
    negation = "not " if clause.negated else ""
    if clause.tense == "present":
        if clause.negated:
            return ("do" if plural else "does"), negation + verb.english
        return "", verb.english if plural else verb.english_third
    if clause.tense == "perfect":
        return ("have" if plural else "has"), negation + verb.english_participle
    return ("will" if clause.tense == "future" else MODALS[int(clause.tense)][0]), negation + verb.english


def _english_rest(clause: Clause, time: bool = True, place: bool = True, direct: bool = True) -> list[str]:
    words = [phrase.english_object for phrase in (clause.indirect, clause.direct if direct else None) if phrase]
    if place and clause.place:
        words.append(clause.place[0])
    if time and clause.time:
        words.append(clause.time[0])
    return words


def english_clause(clause: Clause, subject: str | None = None) -> str:
    auxiliary, verb = _english_verb(clause)
    head = [clause.subject.english if subject is None else subject, auxiliary, verb]
    return " ".join(filter(None, [*head, *_english_rest(clause)]))


def english_question(clause: Clause, word: str = "", **left_out: bool) -> str:
    auxiliary, verb = _english_verb(clause)
    if not auxiliary:
        auxiliary, verb = ("do" if clause.subject.plural else "does"), clause.verb.english
    return " ".join(filter(None, [word, auxiliary, clause.subject.english, verb, *_english_rest(clause, **left_out)]))


# -------------------------------------------------------------------------------------------------------------- German
def _german_verb(clause: Clause) -> tuple[str, str]:
    """The finite verb and what closes the clause: a prefix, a participle or an infinitive."""
    verb, plural = clause.verb, clause.subject.plural
    if clause.tense == "present":
        return (verb.german if plural else verb.german_third), verb.prefix
    if clause.tense == "perfect":
        finite = ("haben" if plural else "hat") if verb.auxiliary == "h" else ("sind" if plural else "ist")
        return finite, verb.prefix + verb.german_participle
    if clause.tense == "future":
        finite = "werden" if plural else "wird"
    else:
        finite = MODALS[int(clause.tense)][2 if plural else 1]
    return finite, verb.prefix + verb.german


def _german_middle(
    clause: Clause, subject: str | None, time: bool = True, place: bool = True, direct: bool = True
) -> list[str]:
    """What stands between the finite verb and the end of a main clause: subject, pronoun, time, objects, place."""
    words = [subject] if subject else []
    if direct and clause.direct and clause.direct.pronoun:
        words.append(clause.direct.german["acc"])
    if time and clause.time:
        words.append(clause.time[1])
    if clause.indirect:
        words.append(clause.indirect.german["dat"])
    if direct and clause.direct and not clause.direct.pronoun:
        words.append(clause.direct.german["acc"])
    if clause.negated:
        words.append("nicht")
    if place and clause.place:
        words.append(clause.place[1])
    return words


def german_main_clause(clause: Clause, first: str = "subject") -> str:
    """The finite verb second, after the subject, the time or the place."""
    finite, end = _german_verb(clause)
    subject = clause.subject.german["nom"]
    if first == "time" and clause.time:
        words = [clause.time[1], finite, *_german_middle(clause, subject, time=False)]
    elif first == "place" and clause.place:
        words = [clause.place[1], finite, *_german_middle(clause, subject, place=False)]
    else:
        words = [subject, finite, *_german_middle(clause, None)]
    return " ".join(filter(None, [*words, end]))


def german_question(clause: Clause, word: str = "", **left_out: bool) -> str:
    """The finite verb first, or after a question word."""
    finite, end = _german_verb(clause)
    middle = _german_middle(clause, clause.subject.german["nom"], **left_out)
    return " ".join(filter(None, [word, finite, *middle, end]))


def german_subordinate_clause(clause: Clause, subject: str | None = None, **left_out: bool) -> str:
    """The finite verb last."""
    finite, end = _german_verb(clause)
    middle = _german_middle(clause, clause.subject.german["nom"] if subject is None else subject, **left_out)
    closing = end + finite if clause.tense == "present" else f"{end} {finite}"
    return " ".join(filter(None, [*middle, closing]))


# ----------------------------------------------------------------------------------------------------------- sentences
def _plain(chance: random.Random) -> tuple[str, str]:
    clause = random_clause(chance)
    return english_clause(clause) + ".", german_main_clause(clause) + "."


def _fronted(chance: random.Random) -> tuple[str, str]:
    clause = random_clause(chance)
    first = "time" if clause.time else "place" if clause.place else "subject"
    if first == "subject":
        return english_clause(clause) + ".", german_main_clause(clause) + "."
    adverbial = clause.time if first == "time" else clause.place
    auxiliary, verb = _english_verb(clause)
    rest = _english_rest(clause, time=first != "time", place=first != "place")
    words = [adverbial[0] if adverbial else "", clause.subject.english, auxiliary, verb, *rest]
    return " ".join(filter(None, words)) + ".", german_main_clause(clause, first) + "."


def _yes_no_question(chance: random.Random) -> tuple[str, str]:
    clause = random_clause(chance)
    return english_question(clause) + "?", german_question(clause) + "?"


def _question_with_word(chance: random.Random) -> tuple[str, str]:
    clause = random_clause(chance)
    asked = [name for name in ("time", "place") if getattr(clause, name)]
    if clause.direct and not clause.direct.pronoun and clause.verb in TRANSITIVE:
        asked.append("direct")
    if not asked:
        asked_subject = NounPhrase("who", {"nom": "wer"}, False, "m")
        clause = random_clause(chance, subject=asked_subject)
        return english_clause(clause) + "?", german_main_clause(clause) + "?"
    what = chance.choice(asked)
    english, german = {"time": ("when", "wann"), "place": ("where", "wo"), "direct": ("what", "was")}[what]
    return english_question(clause, english, **{what: False}) + "?", german_question(
        clause, german, **{what: False}
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
    finite, end = _german_verb(outer)
    relative = german_subordinate_clause(inner, subject=DER["nom"][subject.form])
    rest = " ".join(filter(None, [finite, *_german_middle(outer, None), end]))
    auxiliary, verb = _english_verb(outer)
    predicate = " ".join(filter(None, [auxiliary, verb, *_english_rest(outer)]))
    return (
        f"{english_clause(inner, subject=f'{subject.english} who')} {predicate}.",
        f"{subject.german['nom']}, {relative}, {rest}.",
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
    """English and German sentences without end, no two alike on either side."""
    chance = random.Random(seed)
    patterns, weights = zip(*PATTERNS, strict=True)
    seen: set[str] = set()
    while True:
        english, german = chance.choices(patterns, weights)[0](chance)
        english, german = english[0].upper() + english[1:], german[0].upper() + german[1:]
        if english not in seen and german not in seen:
            seen |= {english, german}
            yield english, german


def embedded_corpus(train: int = 20_000, validation: int = 500, test: int = 1_000, seed: int = 0) -> DatasetDict:
    """The three parts, disjoint, with the column `translation` of "en" and "de".

    Validation and test are drawn first: they stay the same however much training data is asked for.
    """
    pairs = sentence_pairs(seed)
    parts = {}
    for name, size in (("validation", validation), ("test", test), ("train", train)):
        rows = [{"en": english, "de": german} for english, german in itertools.islice(pairs, size)]
        parts[name] = Dataset.from_dict({"translation": rows})
    return DatasetDict({name: parts[name] for name in ("train", "validation", "test")})
