"""The bundler: the modules of all models become one file."""

import runpy
import sys

from transformers.dynamic_module_utils import get_imports, get_relative_imports
from transformers.models.auto.modeling_auto import MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING

import hf_capsule_mt  # registers the models
from hf_capsule_mt.hub.bundle import bundle


def test_all_models_together(tmp_path):
    # the core stays free of names that two modules define, whichever models a checkpoint needs
    models = {model.__module__ for model in MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING.values()}
    ours = sorted(module for module in models if module.startswith(hf_capsule_mt.__name__ + "."))
    assert ours
    file = tmp_path / "all_models.py"
    file.write_text(bundle([*ours, "hf_capsule_mt.hub.plain_pipeline"], "All."), encoding="utf-8")
    assert set(get_imports(file)) <= {"torch", "transformers", "huggingface_hub"} | sys.stdlib_module_names
    assert get_relative_imports(file) == []
    runpy.run_path(str(file))
