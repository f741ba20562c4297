"""Which language a text is in: py3langid, of the extra `auto`, among the languages that are served."""

from collections.abc import Iterable
from functools import cached_property, lru_cache
from importlib.util import find_spec
from typing import Any, NamedTuple


class Detected(NamedTuple):
    language: str
    confidence: float  # from 0 to 1


class Detector:
    """Finds the language of a text among some codes of ISO 639-1; of other codes it knows nothing.

    It is loaded when it is first asked, with 80 MB of numpy.

    Raises:
        ModuleNotFoundError: py3langid is not installed.
    """

    def __init__(self, languages: Iterable[str]) -> None:
        if find_spec("py3langid") is None:
            raise ModuleNotFoundError("py3langid is not installed", name="py3langid")
        self._wanted = set(languages)
        self.rank = lru_cache(maxsize=256)(self._rank)

    @cached_property
    def _identifier(self) -> Any:
        """What detects the languages; `None` if it knows none of them."""
        from py3langid.langid import MODEL_FILE, LanguageIdentifier

        found = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
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
