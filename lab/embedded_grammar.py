"""The grammar of the embedded corpus: random clauses, and how English and German say them."""

import random
from dataclasses import dataclass

from lab.embedded_lexicon import (
    ADJECTIVES_OF_PEOPLE,
    ADJECTIVES_OF_THINGS,
    DITRANSITIVE,
    INTRANSITIVE,
    MODALS,
    PEOPLE,
    PLACES,
    POSSESSIVES,
    SPANS,
    THINGS,
    TIMES,
    TRANSITIVE,
    TRANSITIVE_PEOPLE,
    Adjective,
    Noun,
    Verb,
)

Forms = dict[str, dict[str, str]]  # by case, and by gender or plural (p)


def _forms(nominative: str, accusative: str, dative: str) -> Forms:
    """Return the forms of four words each: masculine, feminine, neuter, plural; "-" is no ending."""
    cases = {"nom": nominative, "acc": accusative, "dat": dative}
    return {case: dict(zip("mfnp", words.replace("-", "").split(" "), strict=True)) for case, words in cases.items()}


# Articles; endings of der-words and ein-words, and of adjectives after them
DER = _forms("der die das die", "den die das die", "dem der dem den")
STRONG = _forms("er e es e", "en e es e", "em er em en")
EIN = _forms("- e - e", "en e - e", "em er em en")
WEAK = _forms("e e e en", "en e e en", "en en en en")
MIXED = _forms("er e es en", "en e es en", "en en en en")

# Numbers by value: 0 to 19, and the tens from 20
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
    """Spell out a number from 2 to 999: "two hundred and thirty-four"."""
    if number < 20:
        return UNITS[number]
    if number < 100:
        return TENS[number // 10 - 2] + (f"-{UNITS[number % 10]}" if number % 10 else "")
    remainder = f" and {english_number(number % 100)}" if number % 100 else ""
    return f"{UNITS[number // 100]} hundred{remainder}"


def german_number(number: int) -> str:
    """Spell out a number from 2 to 999 in one word, units before tens: "zweihundertvierunddreißig"."""
    if number < 20:
        return EINHEITEN[number]
    if number < 100:
        return (f"{EINHEITEN[number % 10]}und" if number % 10 else "") + ZEHNER[number // 10 - 2]
    return f"{EINHEITEN[number // 100]}hundert" + (german_number(number % 100) if number % 100 else "")


@dataclass(frozen=True)
class NounPhrase:
    """A noun phrase or a pronoun: English, German by case, and the features that verbs and pronouns agree with."""

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
    """Draw an article, possessive or number, sometimes an adjective, and a noun."""
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
    noun_words = ([adjective.english] if adjective else []) + [noun.english_plural if plural else noun.english]
    if kind == "a" and noun_words[0][0] in "aeiou":
        english_article = "an"
    english = " ".join([english_article, *noun_words])
    return NounPhrase(english, german, plural, form, english, definite=kind not in ("a", "no", "some", "number"))


def _declined(noun: Noun, case: str, plural: bool) -> str:
    if not plural:
        return noun.german
    return noun.german_plural + ("n" if case == "dat" and noun.german_plural[-1] not in "ns" else "")


@dataclass(frozen=True)
class Clause:
    """The content of a clause, before word order."""

    subject: NounPhrase
    verb: Verb
    tense: str  # present, perfect, future, or a modal's index
    indirect: NounPhrase | None = None
    direct: NounPhrase | None = None
    time: tuple[str, str] | None = None
    place: tuple[str, str] | None = None
    negated: bool = False


def random_clause(chance: random.Random, subject: NounPhrase | None = None, adverbials: bool = True) -> Clause:
    """Draw a clause, about `subject` if given."""

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


# ---- English
def english_verb(clause: Clause) -> tuple[str, str]:
    """Return the auxiliary ("" in a plain present) and the rest of the verb, negation included."""
    verb, plural = clause.verb, clause.subject.plural
    negation = "not " if clause.negated else ""
    if clause.tense == "present":
        if clause.negated:
            return ("do" if plural else "does"), negation + verb.english
        return "", verb.english if plural else verb.english_third
    if clause.tense == "perfect":
        return ("have" if plural else "has"), negation + verb.english_participle
    return ("will" if clause.tense == "future" else MODALS[int(clause.tense)][0]), negation + verb.english


def english_rest(clause: Clause, time: bool = True, place: bool = True, direct: bool = True) -> list[str]:
    words = [phrase.english_object for phrase in (clause.indirect, clause.direct if direct else None) if phrase]
    if place and clause.place:
        words.append(clause.place[0])
    if time and clause.time:
        words.append(clause.time[0])
    return words


def english_clause(clause: Clause, subject: str | None = None) -> str:
    auxiliary, verb = english_verb(clause)
    head = [clause.subject.english if subject is None else subject, auxiliary, verb]
    return " ".join(filter(None, [*head, *english_rest(clause)]))


def english_question(clause: Clause, word: str = "", **left_out: bool) -> str:
    auxiliary, verb = english_verb(clause)
    if not auxiliary:
        auxiliary, verb = ("do" if clause.subject.plural else "does"), clause.verb.english
    return " ".join(filter(None, [word, auxiliary, clause.subject.english, verb, *english_rest(clause, **left_out)]))


# ---- German
def german_verb(clause: Clause) -> tuple[str, str]:
    """Return the finite verb and the clause's last word: a prefix, a participle or an infinitive."""
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


def german_middle(
    clause: Clause, subject: str | None, time: bool = True, place: bool = True, direct: bool = True
) -> list[str]:
    """Return the words between finite verb and end of a main clause: subject, pronoun, time, objects, place."""
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
    """Put the finite verb second, after the subject, the time or the place."""
    finite, end = german_verb(clause)
    subject = clause.subject.german["nom"]
    if first == "time" and clause.time:
        words = [clause.time[1], finite, *german_middle(clause, subject, time=False)]
    elif first == "place" and clause.place:
        words = [clause.place[1], finite, *german_middle(clause, subject, place=False)]
    else:
        words = [subject, finite, *german_middle(clause, None)]
    return " ".join(filter(None, [*words, end]))


def german_question(clause: Clause, word: str = "", **left_out: bool) -> str:
    """Put the finite verb first, or after a question word."""
    finite, end = german_verb(clause)
    middle = german_middle(clause, clause.subject.german["nom"], **left_out)
    return " ".join(filter(None, [word, finite, *middle, end]))


def german_subordinate_clause(clause: Clause, subject: str | None = None, **left_out: bool) -> str:
    """Put the finite verb last."""
    finite, end = german_verb(clause)
    middle = german_middle(clause, clause.subject.german["nom"] if subject is None else subject, **left_out)
    closing = end + finite if clause.tense == "present" else f"{end} {finite}"
    return " ".join(filter(None, [*middle, closing]))
