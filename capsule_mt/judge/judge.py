"""`Judge`: judges anybody's translations by a multilingual encoder and by rules, without a translation model."""

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.util import find_spec

from capsule_mt.catalog.entries import CatalogError, no_such_folder
from capsule_mt.checks.results import Check
from capsule_mt.checks.rules import checks_of
from capsule_mt.coverage.judgement import JudgedWord, Judgement, Reason
from capsule_mt.engine.program import UnsupportedModelError
from capsule_mt.judge.encoder import Encoder
from capsule_mt.judge.numbers import JudgeNumbers, WordOdds, read_numbers, statistics_of
from capsule_mt.judge.witness import PairEvidence, Witness, WordEvidence
from capsule_mt.text.detecting import Detector
from capsule_mt.text.sentences import language_code

DEFAULT_ENCODER = "intfloat/multilingual-e5-small"
MARKED = 0.5  # the probability from which a word is marked
BATCH_SIZE = 32  # pairs that are encoded at once
# the reason that a check is, where it is not the check's own kind
REASONS_OF_CHECKS = {"months": "dates", "weekdays": "dates", "untranslated": "copy"}
MIN_COPIED_WORDS = 3  # shorter texts, such as names, often stay as they are
MAX_PROBE_DEVIATION = 0.05  # of a cosine: int8 changes these by 0.001; weights in 4 bits, somewhat more


class Judge:
    """Judges translations: for each word a probability that it was left out or made up, for each line its reasons.

    >>> judge = Judge.from_pretrained()
    >>> [judgement] = judge.score(["Er schläft nicht."], ["He is asleep."], src_lang="de", tgt_lang="en")
    >>> judgement.reasons, [word.text for word in judgement.left_out]

    The texts may be in any of the encoder's languages; rules that need a language need `src_lang` and `tgt_lang`.
    """

    def __init__(self, encoder: Encoder, numbers: JudgeNumbers | None = None) -> None:
        self.encoder, self.numbers = encoder, numbers or read_numbers()
        self._witness = Witness(encoder, self.numbers.layers[0])

    @classmethod
    def from_pretrained(
        cls,
        folder: str | os.PathLike[str] = DEFAULT_ENCODER,
        *,
        int8: bool = True,
        num_threads: int | None = None,
    ) -> "Judge":
        """Load the encoder whose evidence the numbers were fitted to, by its name or the folder of a copy.

        Args:
            int8: multiply in int8, which is faster.
            num_threads: as for `Encoder.from_pretrained`.

        Raises:
            UnsupportedModelError: another encoder, whose evidence means something else.
            CatalogError: neither a folder nor a model of the hub.
        """
        numbers = read_numbers()
        try:
            encoder = Encoder.from_pretrained(folder, int8=int8, layers=numbers.layers, num_threads=num_threads)
        except CatalogError:
            if "/" in (name := os.fspath(folder)):
                raise
            raise CatalogError(f"{no_such_folder(name)}; {_needs(numbers)}") from None
        except ValueError as error:
            if "`layers`" not in str(error):
                raise
            raise UnsupportedModelError(f"{folder}: has too few layers; {_needs(numbers)}") from None
        judge = cls(encoder, numbers)
        judge.check_encoder()
        return judge

    def check_encoder(self) -> None:
        """Refuse an encoder that gives the probes other cosines than the one that the numbers were fitted for."""
        firsts, seconds, cosines = zip(*self.numbers.probes, strict=True)
        for cosine, evidence in zip(cosines, self._witness.compare(firsts, seconds), strict=True):
            if abs(evidence.similarity - cosine) > MAX_PROBE_DEVIATION:
                raise UnsupportedModelError(
                    f"{self.encoder.loaded.name}: gives two texts a cosine of {evidence.similarity:.3f}, not "
                    f"{cosine:.3f}; {_needs(self.numbers)}"
                )

    def score(
        self,
        sources: Sequence[str],
        translations: Sequence[str],
        *,
        src_lang: str | None = None,
        tgt_lang: str | None = None,
    ) -> list[Judgement | None]:
        """Judge translations; `None` where a text is blank. A pair with over 1,000 times 1,000 tokens is a
        `ValueError`.

        Args:
            src_lang, tgt_lang: codes such as "de" or "deu_Latn", for rules that need a language. With
                py3langid installed, translations that are surely in another one have a reason, too.
        """
        for name, texts in (("sources", sources), ("translations", translations)):
            if isinstance(texts, str) or not all(isinstance(text, str) for text in texts):
                raise TypeError(f"`{name}` must be a sequence of texts")
        if len(sources) != len(translations):
            raise ValueError(f"`translations` must be as many as the {len(sources)} sources, got {len(translations)}")
        pairs = list(zip(sources, translations, strict=True))
        results: list[Judgement | None] = [None] * len(pairs)
        is_foreign = _foreign_text_test(tgt_lang)
        rows = [row for row, (source, target) in enumerate(pairs) if source.strip() and target.strip()]
        rows.sort(key=lambda row: len(pairs[row][0]))
        for start in range(0, len(rows), BATCH_SIZE):
            batch = rows[start : start + BATCH_SIZE]
            compared = self._witness.compare([pairs[row][0] for row in batch], [pairs[row][1] for row in batch])
            for row, evidence in zip(batch, compared, strict=True):
                checks = checks_of(*pairs[row], src_lang, tgt_lang)
                judgement = self._judgement(*pairs[row], evidence, checks)
                if is_foreign(pairs[row][1]):
                    judgement = replace(judgement, reasons=(*judgement.reasons, Reason("another language", False)))
                results[row] = judgement
        return results

    def _judgement(self, source: str, target: str, evidence: PairEvidence, checks: Sequence[Check]) -> Judgement:
        left_out = self.numbers.left_out.probabilities(evidence.source)
        made_up = self.numbers.made_up.probabilities(evidence.target)
        source_words, target_words = (
            _judged(text, words, probabilities)
            for text, words, probabilities in ((source, evidence.source, left_out), (target, evidence.target, made_up))
        )
        reasons = [
            Reason(REASONS_OF_CHECKS.get(check.kind, check.kind), True, check.missing, check.added) for check in checks
        ]
        if source.casefold().split() == target.casefold().split() and len(source_words) >= MIN_COPIED_WORDS:
            reasons.append(Reason("copy", True))
        marked = {
            "left out": (_joined(source, source_words), "", _share(self.numbers.left_out, source_words)),
            "made up": ("", _joined(target, target_words), _share(self.numbers.made_up, target_words)),
        }
        for name, value in statistics_of(evidence, left_out, made_up).items():
            if value > self.numbers.thresholds[name]:
                reasons.append(Reason(name, False, *marked.get(name, ())))
        return Judgement(source_words, target_words, evidence.similarity, tuple(reasons), tuple(checks))


def _judged(text: str, words: Sequence[WordEvidence], probabilities: Sequence[float]) -> tuple[JudgedWord, ...]:
    return tuple(
        JudgedWord(text[word.start : word.end], word.start, word.end, probability, probability >= MARKED)
        for word, probability in zip(words, probabilities, strict=True)
    )


def _foreign_text_test(language: str | None) -> Callable[[str], bool]:
    """Return a function that tells whether a text is surely not in a language, if that and py3langid are there."""
    if find_spec("py3langid") is not None and (code := language_code(language)) is not None:
        detector = Detector()
        if detector.knows(code):
            return lambda text: detector.other_language(text, code) is not None
    return lambda text: False


def _share(odds: WordOdds, words: Sequence[JudgedWord]) -> float | None:
    return odds.share([word.probability for word in words if word.marked])


def _joined(text: str, words: Sequence[JudgedWord]) -> str:
    """Return the marked words, each run of them as the text has it."""
    runs: list[list[JudgedWord]] = [[]]
    for word in words:
        if word.marked:
            runs[-1].append(word)
        elif runs[-1]:
            runs.append([])
    return " ... ".join(text[run[0].start : run[-1].end] for run in runs if run)


def _needs(numbers: JudgeNumbers) -> str:
    return f"a judge needs {numbers.encoder}, for which its numbers were fitted: name that, or the folder of a copy"
