"""A checkpoint folder that loads without the package, and the test that it does."""

import copy
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase
from transformers.models.auto.modeling_auto import MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING, MODEL_MAPPING

from capsule_mt.models.shipped import CALIBRATION_FILE
from hf_capsule_mt.hub.bundle import PACKAGE, bundle
from hf_capsule_mt.hub.load_test import PROGRAM, Probe, probe
from hf_capsule_mt.hub.seams import PACKAGE_ONLY, unused_definitions
from hf_capsule_mt.hub.slimming import slim, without_unused_fields
from hf_capsule_mt.loading import limit_tokenizer, load_checkpoint, share_weights
from hf_capsule_mt.modeling import (
    CapsNMTForConditionalGeneration,
    CapsuleMarianMTModel,
    CapsuleRNMTForConditionalGeneration,
)

TranslationModel = CapsuleMarianMTModel | CapsuleRNMTForConditionalGeneration | CapsNMTForConditionalGeneration

# the file beside a checkpoint that transformers runs with `trust_remote_code=True`
CODE_MODULE = "modeling_hf_capsule_mt"
PIPELINE_MODULE, PIPELINE_CLASS = f"{PACKAGE}.hub.plain_pipeline", "TranslationPipeline"
# The one tokenizer class of the package; its own module is saved beside it
TOKENIZER_MODULE, TOKENIZER_CLASS = f"{PACKAGE}.data.separate_tokenizer", "SeparateVocabulariesTokenizer"
TOKENIZER_AUTO_MAP = {"AutoTokenizer": [f"{TOKENIZER_MODULE.rpartition('.')[2]}.{TOKENIZER_CLASS}", None]}
HEADER = """The model and the pipeline of this checkpoint, made by hf_capsule_mt from its own source. Do not edit.

With hf_capsule_mt installed, this file is not used. Licence: Apache-2.0."""
# Loaded weights may be aligned differently in memory, which changes the last bits of a sum
TOLERANCE = 1e-4


class LoadTestError(RuntimeError):
    """A checkpoint folder does not load without the package, or does not compute the same."""


def export(model: TranslationModel, tokenizer: PreTrainedTokenizerBase, folder: str | os.PathLike[str]) -> Path:
    """Save a translation model so that it loads where the package is not installed.

        AutoModelForSeq2SeqLM.from_pretrained(folder, trust_remote_code=True)
        pipeline("translation", model=folder, trust_remote_code=True)

    After `import hf_capsule_mt`, the folder loads without `trust_remote_code`, and the package's code runs. The
    tokenizer needs no code, but `AutoTokenizer` reads the model's configuration first and would ask for trust:
    `AutoTokenizer.from_pretrained(folder, trust_remote_code=False)` does not. Vocabularies of two sides, with code of
    their own beside them, are the exception. The folder refers to no code but what this function writes into it: an
    `auto_map` of the given tokenizer is dropped.

    The weights keep their dtype, but config.json says float32: transformers loads in the dtype that it says, and half
    weights do not survive fine-tuning.
    """
    config_class = type(model.config)
    translation_class = MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING.get(config_class, None)
    if translation_class is not type(model) or not type(model).__module__.startswith(PACKAGE + "."):
        raise TypeError(
            f"`export` takes a translation model of {PACKAGE}, got a {type(model).__module__}.{type(model).__name__}"
        )
    path = Path(folder)
    with code_entries(model.config):
        model.save_pretrained(path)
    write_code(model, path)
    share_weights(path)
    limit_tokenizer(copy.deepcopy(tokenizer), model.config).save_pretrained(path)
    _update_json(path / "config.json", {"dtype": "float32"})
    is_own = (type(tokenizer).__module__, type(tokenizer).__name__) == (TOKENIZER_MODULE, TOKENIZER_CLASS)
    _update_json(path / "tokenizer_config.json", {"auto_map": TOKENIZER_AUTO_MAP if is_own else None})
    return path


def write_code(model: PreTrainedModel, folder: str | os.PathLike[str]) -> None:
    """Write what a checkpoint needs beside the files of `save_pretrained`: its code, and its calibration if any."""
    Path(folder, f"{CODE_MODULE}.py").write_text(code_of(model), encoding="utf-8")
    if model.config.coverage_calibration is not None:
        _write_json(Path(folder, CALIBRATION_FILE), model.config.coverage_calibration)


@contextmanager
def code_entries(config: PreTrainedConfig) -> Iterator[None]:
    """Let a configuration be saved with the entries that lead transformers to the code beside it.

    It is then short: see `CapsulePreTrainedConfig.to_diff_dict`.
    """
    before = dict(vars(config))
    begin_code_entries(config)
    try:
        yield
    finally:
        for name in vars(config).keys() - before.keys():
            delattr(config, name)


def begin_code_entries(config: PreTrainedConfig) -> None:
    """Let a configuration be saved with those entries from now on."""
    vars(config).update(_code_entries(type(config)))


def add_code(model: PreTrainedModel, folder: str | os.PathLike[str]) -> None:
    """Add to a folder that `save_pretrained` has written what lets it load without the package."""
    with code_entries(model.config):
        model.config.save_pretrained(folder)
    write_code(model, folder)


def code_of(model: PreTrainedModel) -> str:
    """Return the file with the code of a model and its pipeline: what its configuration uses.

    Loaded from it, the model takes no other aggregation, guidance or losses: an error names what is fixed.
    """
    config = model.config
    roots = [type(model).__module__, PIPELINE_MODULE]
    code = bundle(roots, HEADER, PACKAGE_ONLY | unused_definitions(config), lambda source: slim(source, config))
    return without_unused_fields(code, config)


def check_export(folder: str | os.PathLike[str]) -> None:
    """Load what `export` has just written where the package cannot be imported, and compute.

    Raise `LoadTestError` if that fails or gives other logits or tokens than here. It runs the code of the folder:
    never call it on the folder of somebody else.
    """
    path = Path(folder).resolve()
    expected = probe(*load_checkpoint(path, dtype=torch.float32))
    with tempfile.TemporaryDirectory() as temporary:
        completed = subprocess.run(
            [sys.executable, "-I", PROGRAM, str(path), PACKAGE],
            env=os.environ | {"HF_MODULES_CACHE": temporary, "HF_HUB_OFFLINE": "1"},
            stdin=subprocess.DEVNULL,  # where trust is not given, transformers asks for it
            capture_output=True,
            text=True,
            check=False,
        )
    fails = f"the export fails its load test on transformers {transformers.__version__}"
    if completed.returncode != 0:
        raise LoadTestError("\n".join([f"{fails}:", *completed.stderr.strip().splitlines()[-8:]]))
    loaded = Probe(*json.loads(completed.stdout.splitlines()[-1]))
    distance = float((torch.tensor(loaded.logits) - torch.tensor(expected.logits)).abs().max())
    if not distance <= TOLERANCE:
        raise LoadTestError(f"{fails}: the logits differ by {distance:.2g}, more than {TOLERANCE}")
    if loaded.token_ids != expected.token_ids:
        raise LoadTestError(f"{fails}: it translates into {loaded.token_ids}, not {expected.token_ids}")


def _code_entries(config_class: type[PreTrainedConfig]) -> dict[str, Any]:
    """Return the entries of config.json that lead transformers to the bundled code."""
    implementation = f"{CODE_MODULE}.{PIPELINE_CLASS}"
    classes: dict[str, Any] = {
        "AutoConfig": config_class,
        "AutoModel": MODEL_MAPPING[config_class],
        "AutoModelForSeq2SeqLM": MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING[config_class],
    }
    return {
        "auto_map": {auto: f"{CODE_MODULE}.{model_class.__name__}" for auto, model_class in classes.items()},
        "custom_pipelines": {"translation": {"impl": implementation, "pt": ["AutoModelForSeq2SeqLM"], "type": "text"}},
    }


def _update_json(file: Path, changes: dict[str, Any]) -> None:
    """Set entries of a JSON file; `None` drops an entry."""
    content = json.loads(file.read_text(encoding="utf-8")) | changes
    content = {name: value for name, value in content.items() if value is not None or name not in changes}
    _write_json(file, content)


def _write_json(file: Path, content: dict[str, Any]) -> None:
    file.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
