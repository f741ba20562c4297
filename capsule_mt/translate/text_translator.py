"""`TextTranslator`: the base of translators with one model and with two, from texts to `Translation`s."""

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any, overload

from capsule_mt.text.reading import Piece
from capsule_mt.text.segments import Document
from capsule_mt.translate.options import NAMES, TranslationOptions, refuse_unknown
from capsule_mt.translate.results import Translation
from capsule_mt.translate.texts import TranslationIterator

if TYPE_CHECKING:  # late: a call without coverage starts sooner
    from capsule_mt.coverage.options import CoverageOptions


class TextTranslator:
    """Text in, `Translation`s out. A subclass implements the steps, from `plan` to `put_together`."""

    tokenizes_in_threads = True  # whether several threads may tokenise at the same time
    option_names: Collection[str] = NAMES  # the search options that a call may have

    @property
    def is_multilingual(self) -> bool:
        """Whether `src_lang` and `tgt_lang` of a call choose among several languages."""
        return False

    @property
    def target_language(self) -> str | None:
        """The target language of calls that do not name one; `None` if the translator does not know it."""
        return None

    @property
    def has_reverse(self) -> bool:
        """Whether there is a reverse model; it need not be loaded. False for two models."""
        return False

    @property
    def reverse_folders(self) -> list[str]:
        """The folders or names of the reverse models, which need not be loaded."""
        return []

    @property
    def verifies_marks(self) -> bool:
        """Whether a reverse model verifies marks by default."""
        return False

    @property
    def gives_support(self) -> bool:
        """Whether `support` of `CoverageOptions` works: there is a reverse model with a head that aligns words."""
        return False

    @property
    def precision(self) -> dict[str, float] | None:
        """The share of marks that a reader found right, by `marks` of `CoverageOptions`.

        None without a reverse model, or if no reader read them.
        """
        return None

    @overload
    def __call__(self, texts: str, *, num_return_sequences: int, **options: Any) -> list[Translation]: ...
    @overload
    def __call__(self, texts: str, *, coverage: "CoverageOptions | None" = None, **options: Any) -> Translation: ...
    @overload
    def __call__(
        self, texts: list[str] | tuple[str, ...], *, coverage: "CoverageOptions | None" = None, **options: Any
    ) -> list[Translation]: ...
    @overload
    def __call__(
        self, texts: Iterable[str], *, coverage: "CoverageOptions | None" = None, **options: Any
    ) -> Iterable[Translation]: ...
    def __call__(
        self,
        texts: str | Iterable[str],
        *,
        coverage: "CoverageOptions | None" = None,
        **options: Any,
    ) -> Translation | list[Translation] | Iterable[Translation | list[Translation]]:
        """Translate a string, a list or tuple of strings, or lazily any other iterable of strings.

        A text of several sentences is translated sentence by sentence, and the space between them is kept, if the
        target language has one; a blank text stays blank. A sentence that is longer than the model takes is translated
        in pieces. A translation that reaches its limit is reported by a warning. Lone surrogates, which are not
        characters, are read as U+FFFD.

        Args:
            texts: what to translate.
            coverage: find what was left out, and how.
            scores: True computes `Translation.score` while translating, False never. By default it is computed while
                translating, or, where the search is faster without it (greedy, int8, no shortlist), once it is read.
            batch_size: how many sentences go through the model at once.
            batch_tokens: how many tokens, padding included, go through the model at once; overrides `batch_size`.
            split_sentences: False translates each text as if it were one sentence; one that is too long is refused
                without `truncation`.
            truncation: cut a source to what the model takes, with a warning.
            src_lang, tgt_lang: for tokenizers that have languages, and for the rules about sentences, typography and
                checks. A model of one pair takes them from its folder, if that tells the pair, and refuses others. An
                OPUS-MT model of several target languages needs `tgt_lang`, such as "de", "deu" or ">>deu<<", unless
                a text begins with such a token.
            copy: copy what is not a sentence, such as numbers and list marks; and in sentences URLs, tags,
                placeholders, code, emoji, and words that the vocabulary lacks. False: the model reads the text as it
                is, and its output is the translation.
            keep: kinds of text that a translation keeps as they are: ["numbers"]; without `copy`, any of `KEEP_KINDS`.
            copy_foreign: copy lines that are surely not in the source language instead of translating them; needs the
                extra `auto` and the source language.
            alignment: find which words of the text and of the translation belong together.
            options: how to search, by the names of transformers but for `most_repeated`: docs/options.md lists them.
                `max_time` limits each batch.

        Returns:
            A `Translation` for a string, a list of them for a list or a tuple, an iterable for any other iterable,
            in the order of the texts. With `num_return_sequences` above one, each text gets a list of `Translation`s.
        """
        requested = TranslationOptions()
        if coverage is not None or options:
            requested = TranslationOptions.from_call(coverage=coverage, **options)
            refuse_unknown(requested.generate_kwargs, self.option_names)
        if isinstance(texts, (bytes, dict)) or not (hasattr(texts, "__iter__") or hasattr(texts, "__getitem__")):
            raise TypeError(f"`texts` must be a string or an iterable of strings, got a {type(texts).__name__}")
        plan = self.plan(requested)

        def translate(window: list[str]) -> list[Translation | list[Translation]]:
            return [ranked[0] if len(ranked) == 1 else ranked for ranked in self.execute(window, plan)]

        if isinstance(texts, str):
            return translate([texts])[0]
        translations = TranslationIterator(texts, translate, requested.window)
        return list(translations) if isinstance(texts, (list, tuple)) else translations

    def translate(self, texts: Sequence[str], options: TranslationOptions) -> list[list[Translation]]:
        """Translate these texts, sorted by length into batches, and return the best translations of each."""
        return self.execute(texts, self.plan(options))

    def execute(self, texts: Sequence[str], plan: Any) -> list[list[Translation]]:
        """Translate texts by a plan, and return the best translations of each."""
        documents = self.documents(texts, plan)
        pieces = [piece for document in documents for piece in document.pieces]
        return self.put_together(documents, self.translate_pieces(pieces, plan), plan)

    # ---- the steps of `translate`, which the server calls for batches of several requests
    def plan(self, options: TranslationOptions) -> Any:
        """Resolve the options of a call, once, into the plan that the other steps take."""
        raise NotImplementedError

    def completed(self, options: TranslationOptions) -> TranslationOptions:
        """Return the options of a call with what the model adds to them; refuse names that no option has."""
        refuse_unknown(options.generate_kwargs, self.option_names)
        return options

    def documents(self, texts: Sequence[str], plan: Any) -> list[Document]:
        """Cut texts into pieces that fit the model."""
        raise NotImplementedError

    def translate_pieces(self, pieces: Sequence[Piece], plan: Any) -> list[Any]:
        """Translate pieces in batches of similar length; return a result for each."""
        raise NotImplementedError

    def put_together(self, documents: Sequence[Document], results: list[Any], plan: Any) -> list[list[Translation]]:
        """Return the best translations of each text, from the results of its pieces."""
        raise NotImplementedError
