"""Makes `transformers.pipeline("translation", ...)` work where transformers removed it, in this one place.

Version 5 dropped the task. Register it for every sequence-to-sequence model where it is missing, and touch nothing
where it is there.
"""

from typing import Any

import transformers.pipelines
from transformers.pipelines import PIPELINE_REGISTRY

from hf_capsule_mt.modeling.loading import CheckedSeq2SeqLM
from hf_capsule_mt.pipelines.translation import TranslationPipeline
from hf_capsule_mt.pipelines.translator import TASK_WITH_LANGUAGES

TASK = "translation"


class AliasesWithLanguages(dict[str, str]):
    """The registry's aliases, in which `translation_en_to_de` and its like stand for `translation`."""

    def __contains__(self, task: object) -> bool:
        return super().__contains__(task) or (
            isinstance(task, str) and TASK_WITH_LANGUAGES.fullmatch(task) is not None
        )

    def __missing__(self, task: str) -> str:
        if TASK_WITH_LANGUAGES.fullmatch(task) is None:
            raise KeyError(task)
        return TASK


def restore_translation_task() -> None:
    """Register the task, and take it off the list of removed ones where there is such a list."""
    registry: Any = PIPELINE_REGISTRY
    if TASK in registry.supported_tasks:
        return
    registry.register_pipeline(TASK, pipeline_class=TranslationPipeline, pt_model=(CheckedSeq2SeqLM,), type="text")
    # otherwise saving a pipeline would copy our file beside the model and demand `trust_remote_code` to load it
    delattr(TranslationPipeline, "_registered_impl")
    getattr(transformers.pipelines, "REMOVED_TASKS", {}).pop(TASK, None)
    registry.task_aliases = AliasesWithLanguages(registry.task_aliases)
