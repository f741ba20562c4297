"""The reverse model, which translates in the other direction: where it comes from, and its languages in a call."""

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

from capsule_mt.messages import check_path
from capsule_mt.models.languages import target_code_of
from capsule_mt.text.languages import is_surely_other_language
from capsule_mt.translate.options import SCORED, TranslationOptions
from capsule_mt.translate.translator_model import TranslatorModel

if TYPE_CHECKING:  # late: a call without coverage starts sooner
    from capsule_mt.coverage.verified import ForcedPair


class ModelWithReverse(Protocol):
    """A model that forces given translations, and its reverse: a `Scorer`."""

    @property
    def translator_model(self) -> TranslatorModel: ...
    @property
    def has_reverse(self) -> bool: ...
    @property
    def reverse(self) -> "ModelWithReverse | None": ...
    @property
    def force(self) -> "Callable[..., list[ForcedPair | None]]": ...


AnyScorer = TypeVar("AnyScorer", bound=ModelWithReverse)


class ReverseSource(Generic[AnyScorer]):
    """Where the reverse of a model comes from: a scorer, its folder or name, or the name that the calibration gives.

    The latter is that of a folder beside the model's, or of a downloaded model.
    """

    # the name that the calibration gives, and its folder if there is one; (None, None) before the first search
    _located: tuple[str | None, str | None] = (None, None)

    def __init__(self, model: TranslatorModel) -> None:
        self._model = model
        self._reverse: AnyScorer | str | os.PathLike[str] | None = None

    def use(self, reverse: AnyScorer) -> None:
        """Use this reverse model; refuse one of other languages."""
        check_direction(self._model, reverse.translator_model)
        self._reverse = reverse

    def use_path(self, path: str | os.PathLike[str] | None) -> None:
        """Use a reverse model by its folder or name: it is loaded, and its direction checked, when it is first needed.

        None: use the one that the calibration names.
        """
        if path is not None:
            _check_folder_or_name(path)
        self._reverse = path

    @property
    def folder(self) -> str | None:
        """The folder or name of the reverse model, which need not be loaded; `None` if there is none."""
        if self._scorer is not None:
            return self._scorer.translator_model.folder
        if isinstance(self._reverse, (str, os.PathLike)):
            return os.fspath(self._reverse)
        name = self._model.calibration.reverse
        if name is None:
            return None
        if self._located[0] != name:  # only once: what is downloaded later does not change a translator
            beside = os.path.join(os.path.dirname(os.path.abspath(self._model.folder)), name)
            self._located = name, beside if os.path.isdir(beside) else self._model.downloaded_folder(name)
        return self._located[1]

    @property
    def exists(self) -> bool:
        """Whether there is a reverse model; it need not be loaded."""
        return self.folder is not None

    def scorer(self, load: Callable[[str], AnyScorer]) -> AnyScorer | None:
        """Return the reverse model, loaded from its folder at the first call; `None` if there is none."""
        if self._scorer is None and (folder := self.folder) is not None:
            self.use(load(folder))
        return self._scorer

    @property
    def _scorer(self) -> AnyScorer | None:
        reverse = self._reverse
        return None if reverse is None or isinstance(reverse, (str, os.PathLike)) else reverse


def _check_folder_or_name(path: str | os.PathLike[str]) -> None:
    check_path(path, "reverse", "a `Translator`, or the folder or name of a model")
    if os.path.exists(path):
        return
    from capsule_mt.catalog.entries import CatalogError  # late, as most reverse models are folders
    from capsule_mt.catalog.store import name_of

    try:
        name_of(path)
    except CatalogError as error:
        raise CatalogError(f"`reverse`: {error}") from None


def check_direction(model: TranslatorModel, reverse: TranslatorModel) -> None:
    """Refuse a reverse model of other languages: it would verify the marks by chance."""
    if model.pair is None or reverse.pair is None:
        return
    if any(map(is_surely_other_language, reverse.pair, reversed(model.pair))):
        raise ValueError(
            f"`reverse` must translate {model.pair.target}-{model.pair.source}, since {model.folder} translates "
            f"{model.pair}; got {reverse.folder}, which translates {reverse.pair}"
        )


class Directed(NamedTuple):
    """A model that forces the pairs of a call, in the languages of that call: a `Reverse`."""

    scorer: ModelWithReverse
    src_lang: str | None = None
    tgt_lang: str | None = None

    def force(self, texts: Sequence[str], translations: Sequence[str], **options: Any) -> "list[ForcedPair | None]":
        return self.scorer.force(texts, translations, **options, src_lang=self.src_lang, tgt_lang=self.tgt_lang)


def directed(scorer: ModelWithReverse, reverse: ModelWithReverse, options: TranslationOptions) -> Directed:
    """Return the reverse of a model in the languages of a call; refuse one that lacks them."""
    model, reverse_model = scorer.translator_model, reverse.translator_model
    source, target = model.languages_of(options)
    if not reverse_model.is_multilingual:
        pair = reverse_model.pair
        if pair is not None and any(map(is_surely_other_language, pair, (target, source))):
            raise ValueError(
                f"`reverse` must translate {target or '?'}-{source or '?'}, since the call is for "
                f"{source or '?'}-{target or '?'}; got {reverse_model.folder}, which translates {pair}"
            )
        return Directed(reverse)
    # the reverse's own codes may be more precise than those of this model's folder: "zho_Hant" rather than "zh"
    source = options.src_lang or model.languages[0] or reverse_model.languages[1] or source
    target = options.tgt_lang or model.languages[1] or reverse_model.languages[0] or target
    try:
        reverse_model.tokenizer_of(SCORED._replace(src_lang=target, tgt_lang=source))
        if source is None and len(reverse_model.target_tokens) > 1:
            target_code_of(None, reverse_model.target_tokens)
    except ValueError as error:
        raise ValueError(f"`reverse`: {reverse_model.folder}: {error}") from None
    return Directed(reverse, target, source)
