"""A translator for tests of the server, which need no model."""

import re
import threading

from capsule_mt import Coverage, Translation, Word
from capsule_mt.coverage.results import SentenceCoverage, TargetWord


class Upper:
    """Translates into upper case and leaves out words with a "q", unless it has several beams.

    If it `verifies`, words of a translation that its text lacks are made up. A text with "broken" is an error. `free`
    holds it; `calls` are its texts, and the options that tell them apart.
    """

    has_reverse, precision = False, {}

    def __init__(self, *, is_guided: bool = False, seconds: float = 0.0, verifies: bool = False) -> None:
        self.is_guided, self.seconds = is_guided, seconds
        if verifies:
            self.has_reverse, self.precision = True, {"sure": 0.8, "likely": 0.6, "all": 0.4}
        self.calls, self.free = [], threading.Event()
        self.free.set()

    def __call__(self, texts, *, coverage=None, num_beams=None, scores, batch_size, src_lang=None, tgt_lang=None):
        options = {"coverage": coverage, "num_beams": num_beams, "languages": (src_lang, tgt_lang)}
        self.calls.append((list(texts), options))
        self._wait(texts)
        translations = [text if num_beams else re.sub(r"\S*q\S* ?", "", text) for text in texts]
        found = [self._coverage(*pair) for pair in zip(texts, translations, strict=True)]
        return [
            Translation(translation.upper(), None, covered if coverage else None, ())
            for translation, covered in zip(translations, found, strict=True)
        ]

    def cover(self, texts, translations, *, coverage, batch_size):
        self.calls.append((list(zip(texts, translations, strict=True)), {}))
        self._wait(texts)
        return [self._coverage(text, given.lower()) for text, given in zip(texts, translations, strict=True)]

    def _wait(self, texts):
        assert self.free.wait(30)
        threading.Event().wait(self.seconds)
        if any("broken" in text for text in texts):
            raise ValueError("a broken text")

    def _coverage(self, text, translation):
        words = []
        for match in re.finditer(r"\w+|[^\w\s]", text):
            is_left = match[0].lower() not in translation.lower()
            shares = (0.25, 0.75) if self.is_guided else (None, None)
            words.append(Word(match[0], *match.span(), 0.0 if is_left else 1.0, is_left, *shares))
        score = sum(word.covered for word in words) / max(len(words), 1)
        sentences = (SentenceCoverage(0, len(text), score),) if words else ()
        if not self.has_reverse:
            return Coverage(score, tuple(words), sentences, ())
        found = list(re.finditer(r"\w+", translation))
        made_up = [match[0].lower() not in text.lower() for match in found]
        target = tuple(
            TargetWord(match[0], *match.span(), 1.0 - marked, marked)
            for match, marked in zip(found, made_up, strict=True)
        )
        return Coverage(score, tuple(words), sentences, (), 0.7, 1 - sum(made_up) / max(len(made_up), 1), target)
