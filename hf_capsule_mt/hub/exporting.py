"""A checkpoint folder that loads without the package, and the test that it does."""

import json
import os
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import PreTrainedConfig, PreTrainedTokenizerBase
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING, MODEL_MAPPING

from hf_capsule_mt.hub.bundle import PACKAGE, bundle
from hf_capsule_mt.loading import load_checkpoint
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
TOKENIZER_CODE = TOKENIZER_MODULE.rpartition(".")[2]
TOKENIZER_AUTO_MAP = {"AutoTokenizer": [f"{TOKENIZER_CODE}.{TOKENIZER_CLASS}", None]}
HEADER = """The model and the pipeline of this checkpoint, made by hf_capsule_mt from its own source. Do not edit.

With hf_capsule_mt installed, this file is not used. Licence: Apache-2.0."""
PROBE = "The old man buys a red hat, and Who laughs? 3.5 é 🙂"
# Loaded weights may be aligned differently in memory, which changes the last bits of a sum
TOLERANCE = 1e-4
# Parts of the names of environment variables that hold credentials
SECRETS = ("TOKEN", "SECRET", "PASSWORD", "CREDENTIAL", "KEY")


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
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)
    (path / f"{CODE_MODULE}.py").write_text(_bundled_code(config_class), encoding="utf-8")
    _update_json(path / "config.json", _config_entries(config_class))
    is_own = (type(tokenizer).__module__, type(tokenizer).__name__) == (TOKENIZER_MODULE, TOKENIZER_CLASS)
    _update_json(path / "tokenizer_config.json", {"auto_map": TOKENIZER_AUTO_MAP if is_own else None})
    return path


def check_export(folder: str | os.PathLike[str]) -> None:
    """Check an exported folder; raise `LoadTestError` with what is wrong.

    The folder's code and dtype must be what this version of the package exports. Only then load it in a process that
    can neither import the package nor read access tokens; its logits must equal those of this process.
    """
    path = Path(folder).resolve()
    _check_code(path)
    with tempfile.TemporaryDirectory() as temporary:
        try:
            model, tokenizer = load_checkpoint(path, dtype=torch.float32)
            expected = probe(model, tokenizer)
        except Exception as error:
            raise LoadTestError(f"{path} does not load with the package: {error}") from error
        expectation = Path(temporary) / "expected.json"
        expectation.write_text(json.dumps(expected), encoding="utf-8")
        program = Path(__file__).with_name("load_test.py")
        done = subprocess.run(
            [sys.executable, "-I", str(program), str(path), str(expectation), PACKAGE, str(TOLERANCE)],
            env=tokenless_environment(temporary),
            stdin=subprocess.DEVNULL,  # where trust is not given, transformers asks for it
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode != 0:
        last_lines = "\n".join(done.stderr.strip().splitlines()[-8:])
        raise LoadTestError(f"{path} fails its load test on transformers {transformers.__version__}:\n{last_lines}")


def tokenless_environment(temporary: str | os.PathLike[str]) -> dict[str, str]:
    """Return this process's environment for the load test: offline, without credentials, caching in `temporary`."""
    kept = {name: value for name, value in os.environ.items() if not any(part in name.upper() for part in SECRETS)}
    return kept | {
        "HF_MODULES_CACHE": str(Path(temporary) / "modules"),
        "HF_TOKEN_PATH": str(Path(temporary) / "token"),  # instead of the file that `hf auth login` writes
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }


@torch.no_grad()
def probe(model: TranslationModel, tokenizer: PreTrainedTokenizerBase) -> dict[str, list[Any]]:
    """Run a model on one sentence: return the logits of the first token, and the token ids of its translation."""
    batch = tokenizer(PROBE, return_tensors="pt")
    batch.pop("token_type_ids", None)
    start = torch.full((1, 1), model.generation_config.decoder_start_token_id or model.config.decoder_start_token_id)
    logits = model(**batch, decoder_input_ids=start).logits[0, 0].tolist()
    ids = model.generate(**batch, max_length=None, max_new_tokens=12, num_beams=2)[0].tolist()
    return {"probe": [PROBE], "logits": logits, "token_ids": ids}


def _bundled_code(config_class: type[PreTrainedConfig]) -> str:
    return bundle([MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING[config_class].__module__, PIPELINE_MODULE], HEADER)


def _config_entries(config_class: type[PreTrainedConfig]) -> dict[str, Any]:
    """Return the entries of config.json that lead transformers to the bundled code and to weights that train."""
    implementation = f"{CODE_MODULE}.{PIPELINE_CLASS}"
    classes: dict[str, Any] = {
        "AutoConfig": config_class,
        "AutoModel": MODEL_MAPPING[config_class],
        "AutoModelForSeq2SeqLM": MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING[config_class],
    }
    return {
        "auto_map": {auto: f"{CODE_MODULE}.{one.__name__}" for auto, one in classes.items()},
        "custom_pipelines": {"translation": {"impl": implementation, "pt": ["AutoModelForSeq2SeqLM"], "type": "text"}},
        "dtype": "float32",
    }


def _check_code(path: Path) -> None:
    """Raise `LoadTestError` unless the folder's code, references to code, and dtype are what `export` writes."""
    try:
        config, tokenizer_config = (
            json.loads((path / name).read_text(encoding="utf-8")) for name in ("config.json", "tokenizer_config.json")
        )
        config_class = CONFIG_MAPPING[config["model_type"]]
        expected = {f"{CODE_MODULE}.py": _bundled_code(config_class)}
        if tokenizer_config.get("auto_map") is not None:
            expected[f"{TOKENIZER_CODE}.py"] = _source(TOKENIZER_MODULE)
        different = [name for name, code in expected.items() if (path / name).read_text(encoding="utf-8") != code]
    except (OSError, ValueError, KeyError) as error:
        raise LoadTestError(f"{path} is no exported checkpoint ({type(error).__name__}: {error})") from error
    wrong = [f"`{name}`" for name, value in _config_entries(config_class).items() if config.get(name) != value]
    if wrong:
        different.append(f"config.json ({', '.join(wrong)})")
    if tokenizer_config.get("auto_map") not in (None, TOKENIZER_AUTO_MAP):
        different.append("tokenizer_config.json (`auto_map`)")
    if different:
        raise LoadTestError(
            f"{path} is not what this version of {PACKAGE} exports: {', '.join(different)}; export it again"
        )


def _source(module: str) -> str:
    spec = find_spec(module)
    return Path(str(spec and spec.origin)).read_text(encoding="utf-8")


def _update_json(file: Path, changes: dict[str, Any]) -> None:
    """Set entries of a JSON file; `None` drops an entry."""
    content = json.loads(file.read_text(encoding="utf-8")) | changes
    content = {name: value for name, value in content.items() if value is not None or name not in changes}
    file.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
