"""Which language a text is in: py3langid, of the extra `auto`."""

import re
from collections.abc import Iterable
from functools import cached_property, lru_cache
from importlib.util import find_spec
from typing import Any, NamedTuple

from capsule_mt.text.copying import NO_WORDS
from capsule_mt.text.words import WORDS

# Chosen on a development set. On Tatoeba's test sets in German, English and Portuguese, 1 of 2,653 lines of at most
# five words is then taken for another language; of lines of three to five in another language, 99.4 % are found.
LEAST_WORDS = 3
SURE = 5.0  # times as probable as the language that it should be


class Detected(NamedTuple):
    language: str
    confidence: float  # from 0 to 1


class Detector:
    """Finds the language of a text among some codes of ISO 639-1, or all it knows; of other codes it knows nothing.

    It is loaded when it is first asked, with 80 MB of numpy.

    Raises:
        ModuleNotFoundError: py3langid is not installed.
    """

    def __init__(self, languages: Iterable[str] | None = None) -> None:
        if find_spec("py3langid") is None:
            raise ModuleNotFoundError("py3langid is not installed", name="py3langid")
        self._wanted = None if languages is None else set(languages)
        self.rank = lru_cache(maxsize=256)(self._rank)

    @cached_property
    def _identifier(self) -> Any:
        """What detects the languages; `None` if it knows none of them."""
        from py3langid.langid import MODEL_FILE, LanguageIdentifier

        found = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
        if self._wanted is None:
            return found
        known = sorted(self._wanted & set(found.nb_classes))
        if not known:
            return None
        found.set_languages(known)
        return found

    def _rank(self, text: str) -> list[Detected]:
        """Return the languages that the text may be in, the likeliest first."""
        if self._identifier is None:
            return []
        return [Detected(str(language), float(share)) for language, share in self._identifier.rank(text)]

    def knows(self, language: str) -> bool:
        return self._identifier is not None and language in self._identifier.nb_classes

    def other_language(self, text: str, language: str) -> str | None:
        """Return what a text is in instead of this language; `None` if it may be in it, or is too short to say."""
        text = re.sub(NO_WORDS, " ", text)
        if sum(any(map(str.isalpha, match[0])) for match in WORDS.finditer(text)) < LEAST_WORDS:
            return None
        shares = dict(self.rank(text.lower() if text.isupper() else text))
        best = max(shares, key=lambda code: shares[code], default=language)
        return best if language in shares and shares[best] > SURE * shares[language] else None
