"""Pipelines: text in, text out."""

from hf_capsule_mt.pipelines.registration import restore_translation_task
from hf_capsule_mt.pipelines.translation import TranslationPipeline

__all__ = ["TranslationPipeline", "restore_translation_task"]
