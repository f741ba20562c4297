"""Translate on a CPU, and see what was left out: the light distribution. It imports neither torch nor transformers.

>>> from capsule_mt import CoverageOptions, Translator
>>> translator = Translator.from_pretrained("checkpoints/capsule-marian-de-en", int8=True)
>>> translator("Die Kinder spielen heute im Garten.", coverage=CoverageOptions()).coverage.untranslated
()
"""

from typing import TYPE_CHECKING

__version__ = "0.5.0"

if TYPE_CHECKING:
    from capsule_mt.checks.results import Check
    from capsule_mt.coverage.judgement import JudgedWord, Judgement, Reason
    from capsule_mt.coverage.options import CoverageOptions
    from capsule_mt.coverage.results import Coverage, SentenceCoverage, TargetWord, Word
    from capsule_mt.engine.program import UnsupportedModelError
    from capsule_mt.formats.reading import translate_file
    from capsule_mt.judge.encoder import Encoder, HiddenStates
    from capsule_mt.judge.judge import Judge
    from capsule_mt.models.weights import CheckpointError
    from capsule_mt.translate.loading import load
    from capsule_mt.translate.options import TranslationOptions
    from capsule_mt.translate.pivot import PivotTranslator
    from capsule_mt.translate.results import Segment, Translation
    from capsule_mt.translate.translator import Translator

# where each public name is; imported at its first use, so that importing the package takes no time
_HOMES = {
    "CheckpointError": "models.weights",
    "Check": "checks.results",
    "Coverage": "coverage.results",
    "CoverageOptions": "coverage.options",
    "Encoder": "judge.encoder",
    "HiddenStates": "judge.encoder",
    "Judge": "judge.judge",
    "JudgedWord": "coverage.judgement",
    "Judgement": "coverage.judgement",
    "PivotTranslator": "translate.pivot",
    "Reason": "coverage.judgement",
    "Segment": "translate.results",
    "SentenceCoverage": "coverage.results",
    "TargetWord": "coverage.results",
    "Translation": "translate.results",
    "TranslationOptions": "translate.options",
    "Translator": "translate.translator",
    "UnsupportedModelError": "engine.program",
    "Word": "coverage.results",
    "load": "translate.loading",
    "translate_file": "formats.reading",
}
__all__ = [
    "Check",
    "CheckpointError",
    "Coverage",
    "CoverageOptions",
    "Encoder",
    "HiddenStates",
    "Judge",
    "JudgedWord",
    "Judgement",
    "PivotTranslator",
    "Reason",
    "Segment",
    "SentenceCoverage",
    "TargetWord",
    "Translation",
    "TranslationOptions",
    "Translator",
    "UnsupportedModelError",
    "Word",
    "__version__",
    "load",
    "translate_file",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
