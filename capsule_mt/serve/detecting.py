"""Which language a text is in: py3langid, of the extra `auto`, among the languages that somebody expects."""

from collections.abc import Iterable
from functools import lru_cache
from typing import Any, NamedTuple


class Detected(NamedTuple):
    language: str
    confidence: float  # from 0 to 1


class Detector:
    """Finds the language of a text among some codes of ISO 639-1; of other codes it knows nothing.

    Raises:
        ModuleNotFoundError: py3langid is not installed.
    """

    def __init__(self, languages: Iterable[str]) -> None:
        from py3langid.langid import MODEL_FILE, LanguageIdentifier

        self._identifier: Any = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
        self.languages = sorted(set(languages) & set(self._identifier.nb_classes))
        if self.languages:
            self._identifier.set_languages(self.languages)
        self.rank = lru_cache(maxsize=256)(self._rank)

    def _rank(self, text: str) -> list[Detected]:
        """Return the languages that the text may be in, the likeliest first."""
        if not self.languages:
            return []
        return [Detected(str(language), float(share)) for language, share in self._identifier.rank(text)]
