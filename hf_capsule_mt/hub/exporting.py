"""A checkpoint folder that loads without the package, and the test that it does."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer
from transformers.models.auto.modeling_auto import MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING, MODEL_MAPPING

from hf_capsule_mt.hub.bundle import PACKAGE, bundle

CODE_MODULE = "modeling_hf_capsule_mt"
PIPELINE_MODULE, PIPELINE_CLASS = f"{PACKAGE}.pipelines.translation", "TranslationPipeline"
HEADER = """The model and the pipeline of this checkpoint, made by hf_capsule_mt from its own source. Do not edit.

With hf_capsule_mt installed, this file is not used. Licence: Apache-2.0."""
PROBE = "The old man buys a red hat, and Who laughs? 3.5 é 🙂"
# loaded weights may be aligned otherwise in memory, which changes the last bits of a sum
TOLERANCE = 1e-4


class LoadTestError(RuntimeError):
    """A checkpoint folder does not load without the package, or does not compute the same."""


def export(model: Any, tokenizer: Any, folder: str | os.PathLike[str]) -> Path:
    """Saves a translation model so that it loads where the package is not installed.

        AutoModelForSeq2SeqLM.from_pretrained(folder, trust_remote_code=True)
        pipeline("translation", model=folder, trust_remote_code=True)

    With the package installed, the folder loads without `trust_remote_code`, and the package's code runs.
    """
    config_class = type(model.config)
    translation_class = MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING.get(config_class, None)
    if translation_class is not type(model) or not type(model).__module__.startswith(PACKAGE + "."):
        raise TypeError(
            f"`export` takes a translation model of {PACKAGE}, got a {type(model).__module__}.{type(model).__name__}"
        )
    path = Path(folder)
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)
    code = bundle([translation_class.__module__, PIPELINE_MODULE], HEADER)
    (path / f"{CODE_MODULE}.py").write_text(code, encoding="utf-8")
    config = json.loads((path / "config.json").read_text(encoding="utf-8"))
    classes = {
        "AutoConfig": config_class,
        "AutoModel": MODEL_MAPPING[config_class],
        "AutoModelForSeq2SeqLM": translation_class,
    }
    config["auto_map"] = {auto: f"{CODE_MODULE}.{found.__name__}" for auto, found in classes.items()}
    config["custom_pipelines"] = {
        "translation": {"impl": f"{CODE_MODULE}.{PIPELINE_CLASS}", "pt": ["AutoModelForSeq2SeqLM"], "type": "text"}
    }
    (path / "config.json").write_text(json.dumps(config, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return path


def check_export(folder: str | os.PathLike[str]) -> None:
    """Loads an exported folder in a process that cannot import the package; its logits must be those of this process.

    Raises `LoadTestError` with what went wrong.
    """
    path = Path(folder).resolve()
    with tempfile.TemporaryDirectory() as temporary:
        try:
            model = AutoModelForSeq2SeqLM.from_pretrained(path, dtype=torch.float32).eval()
            tokenizer = AutoTokenizer.from_pretrained(path)
            expected = probe(model, tokenizer)
        except Exception as error:
            raise LoadTestError(f"{path} does not load with the package: {error}") from error
        expectation = Path(temporary) / "expected.json"
        expectation.write_text(json.dumps(expected), encoding="utf-8")
        environment = {
            **os.environ,
            "HF_MODULES_CACHE": str(Path(temporary) / "modules"),
            "HF_HUB_OFFLINE": "1",
            "TOKENIZERS_PARALLELISM": "false",
        }
        program = Path(__file__).with_name("load_test.py")
        done = subprocess.run(
            [sys.executable, "-I", str(program), str(path), str(expectation), PACKAGE, str(TOLERANCE)],
            env=environment,
            stdin=subprocess.DEVNULL,  # where trust is not given, transformers asks for it
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode != 0:
        last_lines = "\n".join(done.stderr.strip().splitlines()[-8:])
        raise LoadTestError(f"{path} fails its load test on transformers {transformers.__version__}:\n{last_lines}")


@torch.no_grad()
def probe(model: Any, tokenizer: Any) -> dict[str, list[Any]]:
    """What a model computes for a sentence: the logits of the first token, and its translation's token ids."""
    batch = tokenizer(PROBE, return_tensors="pt")
    batch.pop("token_type_ids", None)
    start = torch.full((1, 1), model.generation_config.decoder_start_token_id or model.config.decoder_start_token_id)
    logits = model(**batch, decoder_input_ids=start).logits[0, 0].tolist()
    ids = model.generate(**batch, max_length=None, max_new_tokens=12, num_beams=2)[0].tolist()
    return {"probe": [PROBE], "logits": logits, "token_ids": ids}
