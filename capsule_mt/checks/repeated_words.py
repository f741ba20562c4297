"""The rules about words that stand twice: one after the other in a translation, or in both texts."""

from collections.abc import Iterator, Sequence

from capsule_mt.checks.repetition import doubled_among
from capsule_mt.checks.results import Check
from capsule_mt.checks.texts import CheckedText

MIN_DOUBLED = 4  # letters of a doubled phrase: shorter ones are often right, as in "die, die"
MIN_UNTRANSLATED = 4  # lower-case words in a run that both texts have
MIN_LAST_WORD = 3  # letters of the last word of a text that is copied as a whole
CODE_MARKS = frozenset("[]<>=|/\\_*#-")  # commands and their options are copied


def doubled_checks(source: CheckedText, translation: CheckedText) -> Iterator[Check]:
    """Yield the phrases of at least four letters or digits that a translation doubles, if its source doubles fewer.

    A phrase that the source doubles, too, as a name or "ha ha", accounts for itself.
    """
    phrases = doubled_among(translation.words)
    source_phrases = doubled_among(source.words) if phrases else phrases
    if phrases.total() > source_phrases.total():
        for phrase in phrases - source_phrases:
            if sum(map(str.isalnum, phrase)) >= MIN_DOUBLED:
                yield Check("doubled", "", phrase)


def untranslated_checks(source: CheckedText, translation: CheckedText) -> Iterator[Check]:
    """Yield the longest run of words that both texts have, if it has enough lower-case words, which are not names.

    Fewer words are enough if the whole text is copied, has no marks of code, and ends in a lower-case word of three
    letters, as in "Print preview" but not in a name.
    """
    words, target_words = ([word for word in text.words if word[0].isalnum()] for text in (source, translation))
    run = _longest_run(words, target_words)
    is_text = len(words) > 1 and CODE_MARKS.isdisjoint(source.words)
    is_copy = source.text.strip() == translation.text.strip()
    if sum(word.islower() for word in run) >= MIN_UNTRANSLATED:
        yield Check("untranslated", " ".join(run), "")
    elif is_copy and is_text and words[-1].islower() and len(words[-1]) >= MIN_LAST_WORD:
        yield Check("untranslated", " ".join(words), "")


def _longest_run(words: Sequence[str], target_words: Sequence[str]) -> Sequence[str]:
    """Return the longest run of words that both lists have."""
    if len(set(words) & set(target_words)) < MIN_UNTRANSLATED:
        return ()
    state, length, longest, end = 0, 0, 0, 0
    transitions, suffix_links, lengths = _suffix_automaton(target_words)
    for index, word in enumerate(words):
        while state and word not in transitions[state]:
            state = suffix_links[state]
            length = lengths[state]
        if word in transitions[state]:
            state, length = transitions[state][word], length + 1
        if length > longest:
            longest, end = length, index + 1
    return words[end - longest : end]


def _suffix_automaton(words: Sequence[str]) -> tuple[list[dict[str, int]], list[int], list[int]]:
    """Return the transitions, suffix links and lengths of the automaton that reads every run of these words.

    Blumer et al. 1985; it has at most two states a word, and takes linear time also where words repeat.
    """
    transitions, suffix_links, lengths = [dict[str, int]()], [-1], [0]
    last = 0
    for word in words:
        state, last = last, len(lengths)
        transitions.append({})
        suffix_links.append(0)
        lengths.append(lengths[state] + 1)
        while state >= 0 and word not in transitions[state]:
            transitions[state][word] = last
            state = suffix_links[state]
        if state < 0:
            continue
        target = transitions[state][word]
        if lengths[target] != lengths[state] + 1:  # a longer run ends there, too: split the state
            clone = len(lengths)
            transitions.append(dict(transitions[target]))
            suffix_links.append(suffix_links[target])
            lengths.append(lengths[state] + 1)
            suffix_links[target] = clone
            while state >= 0 and transitions[state].get(word) == target:
                transitions[state][word] = clone
                state = suffix_links[state]
            target = clone
        suffix_links[last] = target
    return transitions, suffix_links, lengths
