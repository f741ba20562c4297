"""`Plan`: what one call does, made once from its options, the model and its calibration.

The steps of the call read it, and don't load a model.
"""

from typing import TYPE_CHECKING, NamedTuple

from capsule_mt.models.model import LoadedModel
from capsule_mt.options.table import Readings
from capsule_mt.text.segments import Segmenter
from capsule_mt.text.tokenizer_protocol import Tokenizer
from capsule_mt.translate.options import TranslationOptions
from capsule_mt.translate.search_plan import Search

if TYPE_CHECKING:  # late: a call without coverage starts sooner
    from capsule_mt.coverage.methods import Calibration, Verifier
    from capsule_mt.coverage.names import CoveredBy
    from capsule_mt.coverage.options import CoverageOptions

# weight of the omitted share against the mean log-probability of a token, unless `CoverageOptions` sets another
DEFAULT_COVERAGE_WEIGHT = 5.0


class CoveragePlan(NamedTuple):
    """How a call finds what was left out.

    method: what "auto" stands for here.
    threshold: the score below which a sentence is an alarm.
    readings: what a search or a forced pass reads for the method.
    verifier: the reverse model, if the method or `support` needs it; it is loaded.
    marks_single_words: whether words are also marked in sentences that do not raise the alarm.
    precision: the share of marks in the model's own translations that a reader found right.
    retries_marks: whether a sentence with a marked word is translated again.
    """

    options: "CoverageOptions"
    method: "CoveredBy"
    threshold: float | None
    readings: Readings | None
    calibration: "Calibration"
    verifier: "Verifier | None"
    marks_single_words: bool = True
    precision: float | None = None
    retries_marks: bool = False

    @property
    def coverage_arguments(self) -> "tuple[float | None, CoveredBy, bool, float | None]":
        """The last arguments of `coverage_of`."""
        return self.threshold, self.method, self.marks_single_words, self.precision


class Plan(NamedTuple):
    """What one call does.

    search: how it searches. With a `weight`, it returns the hypotheses of all beams, which are then ranked.
    head: the layer and the head that align words, if the model has one.
    weight: rank the hypotheses of beam search by what they leave out, with this weight.
    scores_later: whether scores are computed when they are read, by a forced pass, and not by the search.
    repairs_faults: whether a certain fault starts a second search, unless the options turn that off.
    """

    options: TranslationOptions
    model: LoadedModel
    segmenter: Segmenter
    search: Search
    head: tuple[int, int] | None = None
    coverage: CoveragePlan | None = None
    num_beams: int = 1
    num_returned: int = 1
    weight: float | None = None
    scores_later: bool = False
    repairs_faults: bool = True

    @property
    def tokenizer(self) -> Tokenizer:
        return self.segmenter.tokenizer

    @property
    def languages(self) -> tuple[str | None, str | None]:
        """The languages of the source and of the target, if they are known."""
        return self.segmenter.src_lang, self.segmenter.tgt_lang

    @property
    def threshold(self) -> float | None:
        return None if self.coverage is None else self.coverage.threshold

    def with_beams(self, num_beams: int, weight: float | None = None) -> "Plan":
        """Return the plan of a further search with another number of beams."""
        search = self.search.with_options(
            num_beams=num_beams, num_return_sequences=num_beams if weight else self.num_returned
        )
        return self._replace(search=search, num_beams=num_beams, weight=weight)

    def with_batches_times(self, numerator: int, denominator: int) -> "Plan":
        """Return the plan with larger batches, for sentences that need less memory."""
        options = self.options
        tokens = options.batch_tokens and options.batch_tokens * numerator // denominator
        larger = options._replace(batch_size=options.batch_size * numerator // denominator, batch_tokens=tokens)
        return self._replace(options=larger)
