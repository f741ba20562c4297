"""Pipelines: text in, text out."""

from capsule_mt.text.segments import PrefixedText
from hf_capsule_mt.pipelines.registration import restore_translation_task
from hf_capsule_mt.pipelines.results import (
    Coverage,
    CoverageOptions,
    Segment,
    SentenceCoverage,
    Translation,
    TranslationOptions,
    Word,
)
from hf_capsule_mt.pipelines.translation import TranslationPipeline
from hf_capsule_mt.pipelines.translator import Translator

__all__ = [
    "Coverage",
    "CoverageOptions",
    "PrefixedText",
    "Segment",
    "SentenceCoverage",
    "Translation",
    "TranslationOptions",
    "TranslationPipeline",
    "Translator",
    "Word",
    "restore_translation_task",
]
