"""Load a checkpoint for use, and refuse one whose weights, configuration and tokenizer do not fit together.

`from_pretrained` of transformers' classes initialises missing weights at random, and that of all classes ignores
superfluous ones, so that training can start from them. Such a model would translate into noise.
"""

import os
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar, cast

import torch
from torch import nn
from transformers import (
    AutoConfig,
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    GenerationConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING

import hf_capsule_mt.modeling  # noqa: F401 - registers the models
from capsule_mt.catalog.entries import no_such_folder
from capsule_mt.engine.program import Codes, Tensor
from capsule_mt.models.checking import check_search_options
from capsule_mt.models.loading import ADAPTER_CONFIG, GENERATION_FILE, conversion_advice, is_adapter, weights_in
from capsule_mt.models.weights import (
    CODES_FILES,
    FLOATING_TYPES,
    INDEX_FILE,
    WEIGHTS_FILE,
    CheckpointError,
    SafetensorsFile,
    read_json,
)
from hf_capsule_mt.modeling.checkpoint_files import and_more, file_of, lacks, unusable_tensor

Loaded = TypeVar("Loaded")
NameOrPath = str | os.PathLike[str]

# families whose weights must all have a place; in others, weights without one are common and harmless
STRICT_FAMILIES = frozenset({"marian", "capsule_marian", "capsule_rnmt", "capsnmt"})
UNMEASURED = ("optional_words", "function_words", "support")  # the words of a calibration
HUB_NAME = re.compile(r"[\w-][\w.-]*(/[\w-][\w.-]*)?")
ADAPTER_WEIGHTS, ADAPTER_TYPE = "adapter_model.safetensors", "CAPSULE"  # their file, and their `peft_type`
LARGEST_CODE = 127  # of a weight in int8
DTYPES = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
# a vocabulary may be rounded up to a multiple of one of these
PADDED_TO = (8, 16, 32, 64, 128)


class CheckedSeq2SeqLM(AutoModelForSeq2SeqLM):
    """Loads like `AutoModelForSeq2SeqLM`, and notes in `loading_problem` what does not fit; `check_weights` raises it.

    `transformers.pipeline` tries further classes after an error, so that an error here would be lost.
    """

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: NameOrPath, *args: Any, **kwargs: Any) -> Any:
        model, problem = _load(pretrained_model_name_or_path, *args, **kwargs)
        model.loading_problem = problem
        return model


def load_checkpoint(name_or_path: NameOrPath, **kwargs: Any) -> tuple[Any, PreTrainedTokenizerBase]:
    """Return a model in evaluation mode, and its tokenizer; `kwargs` are those of the model's `from_pretrained`.

    Raise a `CheckpointError` that names the checkpoint or its file, if anything does not fit.
    """
    model = load_model(name_or_path, **kwargs)
    tokenizer = load_tokenizer(name_or_path, model.config)
    check_tokenizer(model, tokenizer)
    return model, tokenizer


def load_model(name_or_path: NameOrPath, **kwargs: Any) -> Any:
    """Return a model in evaluation mode; raise a `CheckpointError` if its weights do not fit its configuration."""
    model = CheckedSeq2SeqLM.from_pretrained(name_or_path, **kwargs)
    check_weights(model)
    return model


def drop_measurements(config: Any) -> bool:
    """Drop what `capsule-mt calibrate` and readers measured before the weights changed; return whether that was any.

    Curves, thresholds, alarms and shares of right marks go. What does not state how well marks work stays: the head of
    "attention", the name of the reverse model, and the lists of words.
    """
    calibration: Mapping[str, Any] = getattr(config, "coverage_calibration", None) or {}
    unmeasured = {name: value for name, value in calibration.items() if name in UNMEASURED}
    for method, key in (("attention", "head"), ("verified", "reverse")):
        if key in calibration.get(method, {}):
            unmeasured[method] = {key: calibration[method][key]}
    if unmeasured == calibration:
        return False
    config.coverage_calibration = unmeasured or None
    return True


def stored_dtype(folder: NameOrPath) -> torch.dtype:
    """Return the dtype in which a folder's safetensors are: bfloat16 or float16 if all have it, else float32."""
    stored = stored_weights(folder)
    dtypes = set() if stored is None else {stored.dtype(name) for name in stored}
    return DTYPES.get(dtypes.pop(), torch.float32) if len(dtypes) == 1 else torch.float32


def load_tokenizer(name_or_path: NameOrPath, config: Any = None) -> PreTrainedTokenizerBase:
    """Return the tokenizer of a checkpoint; an error about its files names the checkpoint.

    Args:
        config: its model's, which saves reading it again.
    """
    check_name_or_path(name_or_path)
    import hf_capsule_mt.data.separate_tokenizer  # noqa: F401 - late, as it takes a second; it registers its class

    tokenizer: Any = _named(
        name_or_path, lambda: AutoTokenizer.from_pretrained(name_or_path, config=config), "the tokenizer"
    )
    for keyword in ("is_local", "local_files_only"):  # `save_pretrained` would write how it was loaded
        tokenizer.init_kwargs.pop(keyword, None)
    return cast(PreTrainedTokenizerBase, tokenizer)


def check_name_or_path(name_or_path: NameOrPath) -> None:
    """Raise a `CheckpointError` for a folder of Marian, and for a missing one that is hardly a name on the hub.

    transformers would ask the hub for a missing folder. A folder may have a tokenizer alone.
    """
    text, path = os.fspath(name_or_path), Path(name_or_path)
    if path.is_dir() and not (path / "config.json").exists() and (advice := conversion_advice(text)):
        raise CheckpointError(f"{text}: not a checkpoint (a folder with a config.json){advice}")
    if path.exists():
        return
    if HUB_NAME.fullmatch(text) is None:
        raise CheckpointError(f"{no_such_folder(text)}, and not a name on the hub (owner/name)")
    if "/" in text and path.parent.is_dir():
        raise CheckpointError(f"{no_such_folder(text)}; the hub is not asked, as there is a folder {path.parent}")


def stored_weights(folder: NameOrPath) -> SafetensorsFile | None:
    """Return the safetensors file of a checkpoint, or its parts, if there is one; raise where one is damaged."""
    if any((Path(folder) / name).exists() for name in (WEIGHTS_FILE, INDEX_FILE)):
        return SafetensorsFile.in_folder(folder)
    return None


@torch.no_grad()
def limit_tokenizer(tokenizer: PreTrainedTokenizerBase, config: Any) -> PreTrainedTokenizerBase:
    """Lower the tokenizer's `model_max_length` to its model's positions, if the model has a limit; return it."""
    positions = getattr(config, "max_position_embeddings", None)
    if positions is not None and positions < tokenizer.model_max_length:
        tokenizer.model_max_length = positions
    return tokenizer


def share_weights(folder: NameOrPath) -> None:
    """Let whoever may read the configuration of a saved checkpoint read its weights.

    safetensors 0.8 writes files that only their owner may read, whatever the umask.
    """
    for config in [Path(folder, name) for name in ("config.json", ADAPTER_CONFIG) if Path(folder, name).is_file()][:1]:
        for weights in Path(folder).glob("*.safetensors"):
            shutil.copymode(config, weights)


def check_weights(model: PreTrainedModel) -> None:
    """Raise a `CheckpointError` if loading noted a problem, or weights or a first token's logits are not finite."""
    problem = getattr(model, "loading_problem", None)
    if problem is not None:
        raise CheckpointError(str(problem))
    name = model.name_or_path or type(model).__name__
    unusable = unusable_tensor(model)
    if unusable is not None:
        weight, numbers = unusable
        raise CheckpointError(f"{_file_of(name, weight)}: `{weight}` has {numbers}")
    config = model.config
    start = getattr(model.generation_config, "decoder_start_token_id", None)
    start = getattr(config, "decoder_start_token_id", None) if start is None else start
    if config.model_type not in STRICT_FAMILIES or start is None or next(model.parameters()).is_meta:
        return
    start_ids = torch.tensor([[start]], device=model.device)
    source = {"input_ids": torch.zeros_like(start_ids), "attention_mask": torch.ones_like(start_ids)}
    logits = model(**source, decoder_input_ids=start_ids, use_cache=False).logits
    if logits.isnan().any() or logits.isposinf().any():  # minus infinity forbids a token
        raise CheckpointError(f"{_file_of(name)}: the logits are not finite")


def check_tokenizer(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
    """Raise a `CheckpointError` if a tokenizer's size, pad or end token does not fit a model."""
    name, config = model.name_or_path or type(model).__name__, model.config
    embedding, head = model.get_input_embeddings(), model.get_output_embeddings()
    if not isinstance(embedding, nn.Embedding):
        return
    num_tokens, largest = len(tokenizer), max(tokenizer.get_vocab().values(), default=-1)
    num_target = getattr(tokenizer, "target_vocab_size", None)
    if num_target is None and getattr(tokenizer, "separate_vocabs", False):
        num_target = len(tokenizer.target_encoder)
    sizes = [("source", embedding.num_embeddings, max(num_tokens, largest + 1))]
    if head is not None and hasattr(head, "weight"):
        sizes.append(("target", len(head.weight), max(num_tokens, largest + 1) if num_target is None else num_target))
    for side, size, tokens in sizes:
        if tokens > size or (config.model_type in STRICT_FAMILIES and not _is_padded(size, tokens)):
            raise CheckpointError(
                f"{name}: the tokenizer has {tokens} tokens, but the {side} vocabulary of the model has {size}"
            )
    if config.model_type in STRICT_FAMILIES:
        for field in ("pad_token_id", "eos_token_id"):
            ours, theirs = getattr(tokenizer, field, None), getattr(config, field, None)
            if ours is not None and theirs is not None and ours not in _as_list(theirs):
                raise CheckpointError(
                    f"{name}: `{field}` is {ours} in the tokenizer, but {theirs} in the configuration of the model"
                )


def _load(name_or_path: NameOrPath, *args: Any, **kwargs: Any) -> tuple[Any, str | None]:
    """Load a model; return it with a sentence about weights that are missing, superfluous or of another shape."""

    def named(load: Callable[[], Any]) -> Any:
        try:
            return _named(name_or_path, load)
        except CheckpointError:
            _check_family(folder / "config.json", kwargs)
            raise

    check_name_or_path(name_or_path)
    folder = Path(name_or_path)
    if _is_ours(folder):
        return _load_adapted(folder, *args, **kwargs)
    # only the mode without an error tells which tensors have another shape
    settings = {"ignore_mismatched_sizes": True} | kwargs | {"output_loading_info": True}
    if folder.is_dir():
        stored_weights(folder)
        _check_kernels(folder / "config.json")
        # or transformers asks whether to trust code in the folder, and waits
        settings["trust_remote_code"] = bool(kwargs.get("trust_remote_code"))
    source: NameOrPath | None = name_or_path
    model_class: Any = AutoModelForSeq2SeqLM
    if any((folder / name).is_file() for name in CODES_FILES):
        if kwargs.get("dtype") == "auto":
            settings["dtype"] = torch.float32
        trust = settings["trust_remote_code"]
        config = settings.get("config") or named(lambda: AutoConfig.from_pretrained(folder, trust_remote_code=trust))
        source, settings = None, settings | {"config": config, "state_dict": _state_of_codes(folder)}
        model_class = MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING[type(config)]
    model, info = named(lambda: model_class.from_pretrained(source, *args, **settings))
    if source is None:
        model.name_or_path = model.config.name_or_path = os.fspath(name_or_path)
    if (folder / GENERATION_FILE).is_file():  # transformers takes the defaults for one that it cannot read
        generation_config = named(lambda: GenerationConfig.from_pretrained(folder))
        check_search_options(vars(generation_config), str(folder / GENERATION_FILE))
        if source is None:
            model.generation_config = generation_config
    if is_adapter(folder):
        drop_measurements(model.config)
    problem = _loading_problem(model, info, name_or_path, kwargs)
    if problem is None and model.config.model_type in STRICT_FAMILIES:
        problem = _token_problem(model, name_or_path)
    if problem is None and folder.is_dir():
        problem = _type_problem(model, folder)
    return model.eval(), problem


def _is_ours(folder: Path) -> bool:
    """Return whether a folder has an adapter of ours; other methods of peft are left to transformers."""
    return is_adapter(folder) and read_json(str(folder / ADAPTER_CONFIG)).get("peft_type") == ADAPTER_TYPE


def _load_adapted(folder: Path, *args: Any, **kwargs: Any) -> tuple[Any, str | None]:
    """Load an adapter and the model that it stands beside.

    Where there is a class for both together, the result is one of it. Else it is the base, with hooks.
    """
    from hf_capsule_mt.adapters.merging import can_merge  # first: without peft, its error says what to install

    from peft import PeftModel, get_peft_model_state_dict  # isort: skip

    file = folder / ADAPTER_CONFIG
    base_name = read_json(str(file)).get("base_model_name_or_path")
    if not isinstance(base_name, str):
        raise CheckpointError(f"{file}: `base_model_name_or_path` must be a folder or a name, got {base_name!r}")
    try:
        base, problem = _load(base_name, *args, **kwargs)
    except CheckpointError as error:
        raise CheckpointError(f"{file}: `base_model_name_or_path`: {error}") from None
    if (folder / GENERATION_FILE).is_file():
        base.generation_config = _named(folder, lambda: GenerationConfig.from_pretrained(folder))
        check_search_options(vars(base.generation_config), str(folder / GENERATION_FILE))
    weights = SafetensorsFile(str(folder / ADAPTER_WEIGHTS))
    model: Any = _named(folder, lambda: PeftModel.from_pretrained(base, folder))
    expected = get_peft_model_state_dict(model).keys()
    if missing := expected - set(weights):
        problem = f"{folder / ADAPTER_WEIGHTS}: {lacks(missing)}"
    elif superfluous := set(weights) - expected:
        problem = f"{folder / ADAPTER_WEIGHTS}: has no place for `{min(superfluous)}`{and_more(superfluous)}"
    result = model.merge_and_unload() if can_merge(base) else model.get_base_model()
    result.name_or_path = result.config.name_or_path = os.fspath(folder)
    drop_measurements(result.config)
    return result.eval(), problem


def from_codes(codes: torch.Tensor, largest: torch.Tensor) -> torch.Tensor:
    """Return the weight [out, in] whose rows have these codes of int8 and this largest magnitude [out].

    Rounding it again gives the same codes and the same largest magnitude, bit for bit.
    """
    weight = codes.float() * (largest / LARGEST_CODE)[:, None]
    return torch.where(codes.abs() == LARGEST_CODE, largest[:, None] * codes.sign(), weight)


def _state_of_codes(folder: Path) -> dict[str, torch.Tensor]:
    """Return the weights of an int8 or a small checkpoint in float32."""
    file = weights_in(os.fspath(folder))
    state = {}
    for name in file:
        weight = file.read(name)
        if isinstance(weight, Codes):
            codes = torch.frombuffer(bytearray(weight.codes.buffer), dtype=torch.int8).view(weight.codes.shape)
            state[name] = from_codes(codes, _floats(weight.magnitudes))
        else:
            state[name] = _floats(weight)
    return state


def _floats(tensor: Tensor) -> torch.Tensor:
    return torch.frombuffer(bytearray(tensor.buffer), dtype=DTYPES[tensor.dtype]).view(tensor.shape).float()


def _check_kernels(file: Path) -> None:
    """Refuse an implementation of attention that transformers would load, as code, from the hub."""
    try:
        waiting: list[Any] = [read_json(str(file))]
    except CheckpointError:
        return  # loading says what is wrong
    while waiting:
        for name, value in waiting.pop().items():
            if isinstance(value, dict):
                waiting.append(value)
            elif name.endswith("attn_implementation") and "/" in str(value):
                raise CheckpointError(
                    f"{file}: `{name}` must be one that transformers has, such as eager or sdpa, got {value!r}, whose "
                    "code would be loaded from the hub"
                )


def _check_family(file: Path, kwargs: Mapping[str, Any]) -> None:
    """Refuse a model type that nothing here knows, unless the caller trusts the code in the folder."""
    if not file.is_file() or "config" in kwargs or kwargs.get("trust_remote_code"):
        return
    model_type = read_json(str(file)).get("model_type")
    if isinstance(model_type, str) and model_type not in CONFIG_MAPPING:
        raise CheckpointError(
            f"{file}: `model_type` must be one that transformers or this package knows, got {model_type!r}; a model "
            "with code of its own needs `trust_remote_code=True`"
        )


def _loading_problem(
    model: PreTrainedModel, info: dict[str, Any], name_or_path: NameOrPath, settings: dict[str, Any]
) -> str | None:
    reshaped = sorted(info["mismatched_keys"])
    if reshaped:
        tensor, saved, expected = reshaped[0]
        return (
            f"{_file_of(name_or_path, tensor, settings)}: `{tensor}` is {list(saved)}, but the configuration requires "
            f"{list(expected)}{and_more(reshaped)}"
        )
    if missing := info["missing_keys"]:
        return f"{_file_of(name_or_path, min(missing), settings)}: {lacks(missing)}"
    superfluous = sorted(info["unexpected_keys"])
    if superfluous and model.config.model_type in STRICT_FAMILIES:
        tensor = superfluous[0]
        return (
            f"{_file_of(name_or_path, tensor, settings)}: has `{tensor}`, which the configuration does not describe"
            f"{and_more(superfluous)}"
        )
    return None


def _token_problem(model: PreTrainedModel, name_or_path: NameOrPath) -> str | None:
    """Find a token id of the generation configuration that is outside of the vocabulary."""
    head = model.get_output_embeddings()
    size = len(cast(torch.Tensor, head.weight))
    for field in ("decoder_start_token_id", "forced_bos_token_id", "forced_eos_token_id", "eos_token_id"):
        for token in _as_list(getattr(model.generation_config, field, None)):
            if not 0 <= token < size:
                file = Path(name_or_path) / GENERATION_FILE
                return f"{file}: `{field}` is {token}, but the vocabulary has the tokens 0 to {size - 1}"
    return None


def _type_problem(model: PreTrainedModel, folder: Path) -> str | None:
    """Find a weight that is saved as whole numbers, which loading turns into floating-point ones without a scale."""
    if getattr(model.config, "quantization_config", None) is not None:
        return None
    state, stored = model.state_dict(), stored_weights(folder)
    if stored is None:
        return None
    for tensor in stored:
        if tensor in state and state[tensor].is_floating_point() and stored.dtype(tensor) not in FLOATING_TYPES:
            dtype, accepted = stored.dtype(tensor), ", ".join(FLOATING_TYPES)
            return str(stored.problem(tensor, f"`{tensor}` is saved as {dtype}, choose one of {accepted}"))
    return None


def _named(name_or_path: NameOrPath, load: Callable[[], Loaded], part: str = "the checkpoint") -> Loaded:
    """Call `load`, and turn what the libraries raise for a damaged file into an error that names the checkpoint."""
    try:
        return load()
    except (CheckpointError, ImportError):
        raise
    except Exception as error:  # the libraries raise many kinds, some derived from `Exception` alone
        text, message = os.fspath(name_or_path), " ".join(str(error).split())
        subject = f"{text}:" if os.path.exists(text) else f"{no_such_folder(text)}, and on the hub,"
        raise CheckpointError(f"{subject} {part} does not load: {type(error).__name__}: {message}") from error


def _file_of(name_or_path: NameOrPath, tensor: str | None = None, settings: dict[str, Any] | None = None) -> str:
    """Return the file that has a tensor, or should have it; the checkpoint's name if there is no such file.

    Args:
        settings: keywords of `from_pretrained`.
    """
    folder = Path(name_or_path)
    codes = [folder / name for name in CODES_FILES if (folder / name).exists()]
    if codes and not (folder / WEIGHTS_FILE).exists():
        return str(codes[0])
    return file_of(name_or_path, tensor, settings or {})


def _is_padded(size: int, tokens: int) -> bool:
    return size == tokens or any(size == -(-tokens // multiple) * multiple for multiple in PADDED_TO)


def _as_list(value: Any) -> list[Any]:
    return [] if value is None else list(value) if isinstance(value, (list, tuple)) else [value]
