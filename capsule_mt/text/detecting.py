"""Detect the language of a text by py3langid, of the extra `auto`."""

from collections.abc import Callable, Iterable
from functools import cached_property, lru_cache
from importlib.util import find_spec
from typing import Any, NamedTuple

from capsule_mt.text.keeping import without_items
from capsule_mt.text.rules import NON_WORDS
from capsule_mt.text.sentences import language_code
from capsule_mt.text.words import WORDS

MIN_WORDS = 3
# Probability of the detected language divided by that of the expected one. py3langid is unsure of short lines: at a
# ratio of 5, it took 2 % of lines of three words for another language. Of 100, 150, 200, 300 and 1000, 300 is the
# lowest that keeps this rate below 0.05 % on development lines of every length.
MIN_RATIO = 300.0


@lru_cache(maxsize=1)
def _identifier() -> Any:
    """Load py3langid's model once for all detectors, which only read it."""
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)


class Detected(NamedTuple):
    language: str
    confidence: float  # from 0 to 1


class Detector:
    """Detects the language of a text among candidates.

    A confidence is the probability among all of py3langid's languages: a text in a language that is not a candidate
    has a low one for each candidate. The model is loaded when it is first needed.

    Args:
        languages: ISO 639-1 codes of the candidates; by default, all languages of py3langid. Others are ignored.

    Raises:
        ModuleNotFoundError: py3langid is not installed.
    """

    def __init__(self, languages: Iterable[str] | None = None) -> None:
        if find_spec("py3langid") is None:
            raise ModuleNotFoundError("py3langid is not installed", name="py3langid")
        self._candidates = None if languages is None else set(languages)
        self.rank = lru_cache(maxsize=256)(self._rank)

    @cached_property
    def _supported(self) -> frozenset[str]:
        """The candidate languages that py3langid knows."""
        known = frozenset(map(str, _identifier().nb_classes))
        return known if self._candidates is None else known & self._candidates

    def _rank(self, text: str) -> list[Detected]:
        """Return the candidate languages of a text, the likeliest first."""
        if not self._supported:
            return []
        ranked = [(str(language), float(confidence)) for language, confidence in _identifier().rank(text)]
        return [Detected(language, confidence) for language, confidence in ranked if language in self._supported]

    def knows(self, language: str) -> bool:
        return language in self._supported

    def other_language(self, text: str, language: str) -> str | None:
        """Return the language of a text that is not in `language`; `None` if it may be, or if it is too short."""
        text = without_items(text, " ", NON_WORDS)
        if sum(any(map(str.isalpha, match[0])) for match in WORDS.finditer(text)) < MIN_WORDS:
            return None
        confidences = dict(self.rank(text.lower() if text.isupper() else text))
        best = max(confidences, key=lambda code: confidences[code], default=language)
        is_other = language in confidences and confidences[best] > MIN_RATIO * confidences[language]
        return best if is_other else None


@lru_cache(maxsize=1)
def _detector() -> Detector:
    return Detector()


def foreign_lines_of(language: str | None) -> Callable[[str], bool]:
    """Return a function that tells whether a line is surely not in a language, such as "de" or "deu_Latn"."""
    code = language_code(language)
    if code is None:
        raise ValueError("`copy_foreign` needs the source language, and the model does not state it: give `src_lang`")
    try:
        detector = _detector()
    except ModuleNotFoundError as error:
        message = '`copy_foreign` needs py3langid: pip install "./capsule_mt[auto]"'
        raise ModuleNotFoundError(message, name=error.name) from None
    if not detector.knows(code):
        raise ValueError(f"`copy_foreign` takes a source language that py3langid knows, got {language!r}")
    return lambda line: detector.other_language(line, code) is not None
