"""A checkpoint as a folder of Marian's, its weights bit for bit in a `.npz`: the inverse of `to_huggingface`.

Marian has no token for padding and starting: tokens with embeddings of zeros at the end of a vocabulary are left out.
"""

import json
import math
import os
import zipfile
from array import array
from collections.abc import Mapping, Sequence
from typing import Any

from capsule_mt.conversions.to_pieces import write_pieces
from capsule_mt.engine.library import widened
from capsule_mt.engine.program import Tensor, UnsupportedModelError
from capsule_mt.messages import shown
from capsule_mt.models.checkpoint_tokenizer import TARGET_TOKENIZER_FILE, TOKENIZER_FILE
from capsule_mt.models.loading import CONFIG_FILE, open_checkpoint, refuse_ctranslate2, weights_in
from capsule_mt.models.marian_files import OPTIONS, transposed
from capsule_mt.models.marian_folder import has_model_file
from capsule_mt.models.marian_options import LAYER_NORM_EPSILON
from capsule_mt.models.marian_weights import StoredWeight, stored_weights_of
from capsule_mt.models.parts import EPSILON, TIED
from capsule_mt.models.registry import write_program
from capsule_mt.models.settings import MAX_NUMBER
from capsule_mt.models.shipped import CALIBRATION_FILE
from capsule_mt.models.shortlist import FILE_NAME as SHORTLIST_FILE
from capsule_mt.models.shortlist import Shortlist
from capsule_mt.models.weights import CheckpointError, read_json

MODEL_FILE, CONFIGURATION_FILE, MARIAN_SHORTLIST_FILE = "model.npz", "config.yml", "lex.s2t.bin"

# the values that Marian's format can represent; the first is the default of a missing field
REPRESENTABLE: dict[str, tuple[Any, ...]] = {
    "layer_aggregation": ("none",),
    "head_aggregation": ("concat",),
    "guided_routing": ("none",),
    "decoder_self": ("attention", "ssru"),
}
# fields that must be on, but are off by default
ON = {
    "marian_positions": "Marian has positions of its own, other than transformers': train with "
    "`marian_positions` true, or set it and accept that some sentences change",
    "scale_embedding": "Marian multiplies embeddings by the square root of their width",
}
EPSILON_REASON = (
    f"only {LAYER_NORM_EPSILON}, which Marian adds to a variance: "
    "train with it, or set it and accept that some sentences change"
)
ACTIVATIONS = {"relu": "relu", "swish": "swish", "silu": "swish"}
EQUAL_FIELDS = (
    ("encoder_attention_heads", "decoder_attention_heads", 16),
    ("encoder_ffn_dim", "decoder_ffn_dim", 4096),
)
# the embedding of the start token counts as zeros up to this: training moves it by no more if `label_smoothing` is 0
SMALLEST_NUMBER = 1e-9
# the options that Marian stores with every transformer; `_options` adds the sizes
TRANSFORMER: dict[str, Any] = {
    "type": "transformer",
    "bert-train-type-embeddings": True,
    "bert-type-vocab-size": 2,
    "dec-cell-base-depth": 2,
    "dec-cell-high-depth": 1,
    "dim-rnn": 1024,
    "enc-cell": "gru",
    "enc-cell-depth": 1,
    "enc-type": "bidirectional",
    "input-types": [],
    "layer-normalization": False,
    "lemma-dim-emb": 0,
    "output-omit-bias": False,
    "right-left": False,
    "skip": False,
    "transformer-aan-activation": "swish",
    "transformer-aan-depth": 2,
    "transformer-aan-nogate": False,
    "transformer-dim-aan": 2048,
    "transformer-ffn-depth": 2,
    "transformer-guided-alignment-layer": "last",
    "transformer-no-projection": False,
    "transformer-pool": False,
    "transformer-postprocess": "dan",
    "transformer-postprocess-emb": "d",
    "transformer-postprocess-top": "",
    "transformer-preprocess": "",
    "transformer-tied-layers": [],
    "transformer-train-position-embeddings": False,
    "ulr": False,
    "ulr-dim-emb": 0,
    "ulr-trainable-transformation": False,
}


def write_marian_folder(folder: str | os.PathLike[str], out: str | os.PathLike[str]) -> None:
    """Write the model in a folder to the folder `out`: weights, vocabularies, shortlist, calibration, configuration.

    Raises:
        UnsupportedModelError: a feature that Marian lacks, by name.
        CheckpointError: a damaged checkpoint.
    """
    folder, out = os.fspath(folder), os.fspath(out)
    refuse_ctranslate2(folder)
    stored = _Stored(folder)
    os.makedirs(out, exist_ok=True)
    vocabularies = _write_vocabularies(folder, out, stored.sizes)
    _write_weights(stored, os.path.join(out, MODEL_FILE))
    checkpoint = open_checkpoint(folder)
    configuration: dict[str, Any] = {
        "relative-paths": True,
        "models": [MODEL_FILE],
        "vocabs": [vocabularies[0], vocabularies[-1]],
        "beam-size": checkpoint.generation.get("num_beams", 1),
        "normalize": checkpoint.generation.get("length_penalty", 1.0),
        "word-penalty": 0,
    }
    if os.path.lexists(os.path.join(folder, SHORTLIST_FILE)):
        Shortlist.load(folder).save_as_marian(os.path.join(out, MARIAN_SHORTLIST_FILE), stored.sizes)
        configuration["shortlist"] = [MARIAN_SHORTLIST_FILE, False]
    calibration = checkpoint.config.get("coverage_calibration")
    texts = {CONFIGURATION_FILE: _yaml(configuration) + "\n"}
    if calibration:
        texts[CALIBRATION_FILE] = json.dumps(calibration, indent=2, sort_keys=True) + "\n"
    for name, text in texts.items():
        with open(os.path.join(out, name), "w", encoding="utf-8") as stream:
            stream.write(text)


def _write_vocabularies(folder: str, out: str, sizes: Sequence[int]) -> list[str]:
    """Write the `.spm` of both languages, or of each; return their names."""
    files = [os.path.join(folder, name) for name in (TOKENIZER_FILE, TARGET_TOKENIZER_FILE)]
    if not os.path.lexists(files[0]):
        raise UnsupportedModelError(
            f"{folder}: has no {TOKENIZER_FILE}, and vocab.json numbers tokens as no .spm of Marian's does"
        )
    has_two = os.path.lexists(files[1])
    names = ["srcvocab.spm", "trgvocab.spm"] if has_two else ["vocab.spm"]
    for file, name, size in zip(files, names, sizes, strict=False):
        write_pieces(file, os.path.join(out, name), size)
    return names


def write_marian(folder: str | os.PathLike[str], out: str | os.PathLike[str]) -> None:
    """Write the weights of the model in a folder as the `.npz` `out`; see `write_marian_folder`."""
    _write_weights(_Stored(os.fspath(folder)), os.fspath(out))


def _write_weights(stored: "_Stored", out: str) -> None:
    items = {}
    for name, weight in stored_weights_of(stored.config, MAX_NUMBER, stored.file).items():
        tensor = _in_marians_order(stored.read(name), weight, stored.sizes)
        items[weight.name] = _numpy("<f4", tensor.shape, tensor.buffer)
    text = _yaml(_options(stored.config, stored.sizes)).encode() + b"\0"
    items[OPTIONS] = _numpy("|i1", (len(text),), text)
    with zipfile.ZipFile(f"{out}.part", "w") as archive:
        for name in sorted(items):
            archive.writestr(zipfile.ZipInfo(f"{name}.npy"), items[name])
    os.replace(f"{out}.part", out)


def _checked(config: Mapping[str, Any], file: str) -> dict[str, Any]:
    """Return a configuration with all fields set; refuse one that Marian's format cannot represent."""
    checked = {"share_encoder_decoder_embeddings": True, "tie_word_embeddings": True, **config}

    def refuse(name: str, only: str) -> UnsupportedModelError:
        return UnsupportedModelError(
            f"{file}: `{name}` {shown(checked.get(name))} cannot be stored in Marian's format: {only}"
        )

    if checked.get("model_type") not in ("marian", "capsule_marian"):
        raise refuse("model_type", "only 'marian' and 'capsule_marian'")
    for name, values in REPRESENTABLE.items():
        if checked.setdefault(name, values[0]) not in values:
            raise refuse(name, f"only {' or '.join(map(repr, values))}")
    for name, reason in ON.items():
        if checked.setdefault(name, False) is not True:
            raise refuse(name, reason)
    if checked.setdefault("layer_norm_eps", EPSILON) != LAYER_NORM_EPSILON:
        raise refuse("layer_norm_eps", EPSILON_REASON)
    if checked.setdefault("activation_function", "gelu") not in ACTIVATIONS:
        raise refuse("activation_function", f"only {', '.join(ACTIVATIONS)}")
    checked.setdefault("decoder_start_token_id", 58100)
    for encoder_field, decoder_field, default in EQUAL_FIELDS:
        if checked.setdefault(encoder_field, default) != checked.setdefault(decoder_field, default):
            raise refuse(decoder_field, f"only {shown(checked[encoder_field])}, as `{encoder_field}`")
    for name in ("encoder_layers", "decoder_layers"):
        if checked.setdefault(name, 12) == 0:
            raise refuse(name, "only 1 and more")
    if not checked["tie_word_embeddings"]:  # then each side has separate embeddings, whatever the field says
        checked["share_encoder_decoder_embeddings"] = False
    return checked


class _Stored:
    """The weights of a checkpoint in float32, by the names of modules; tied modules read the one stored matrix.

    sizes: the number of tokens of each vocabulary.
    """

    def __init__(self, folder: str) -> None:
        self.file = os.path.join(folder, CONFIG_FILE)
        if not os.path.lexists(self.file):
            problem = f"has no {CONFIG_FILE}" if os.path.isdir(folder) else "no such folder"
            if has_model_file(folder):
                problem = "is already a folder of Marian: use it as it is"
            raise CheckpointError(f"{folder}: {problem}")
        config = self.config = _checked(read_json(self.file), self.file)
        program, self.parts = write_program(config, weights_in(folder), self.file)  # checks all names and shapes
        self.vocabulary = program.vocabulary
        shared, encoder, decoder, head = TIED
        is_shared = config["share_encoder_decoder_embeddings"]
        self.tied = (
            {shared: TIED} if is_shared else {decoder: (decoder, head)} if config["tie_word_embeddings"] else {}
        )
        tables = (shared, shared) if is_shared else (encoder, decoder)
        self.sizes = [_num_tokens(self.read(f"{table}.weight"), config, self.file) for table in tables]

    def read(self, name: str) -> Tensor:
        if name == "final_logits_bias" and name not in self.parts.weights:
            return Tensor(bytes(4 * self.vocabulary), "F32", (1, self.vocabulary))
        module = name.removesuffix(".weight")
        return widened(self.parts.tensor(self.parts.tied(*self.tied[module]) if module in self.tied else name))


def _num_tokens(table: Tensor, config: Mapping[str, Any], file: str) -> int:
    """Return the number of a vocabulary's tokens that Marian has: those before the zeros at its end."""
    numbers, (count, width) = array("f", bytes(table.buffer)), table.shape
    largest = 0.0
    while count and (largest := max(map(abs, numbers[(count - 1) * width : count * width]))) <= SMALLEST_NUMBER:
        count -= 1
    start = config["decoder_start_token_id"]
    if start is None or start < count:
        raise UnsupportedModelError(
            f"{file}: `decoder_start_token_id` {shown(start)} cannot be stored in Marian's format: only a token at "
            "the end of the vocabulary with an embedding of zeros; "
            f"token {count - 1} has numbers up to {largest:.3g}"
        )
    return count


def _in_marians_order(tensor: Tensor, weight: StoredWeight, sizes: Sequence[int]) -> Tensor:
    """Return a tensor in the shape and the order in which Marian stores `weight`."""
    shape = tensor.shape
    if weight.kind == "bias":
        shape = (1, sizes[1])
    elif weight.kind == "table":
        shape = (sizes[weight.name != "encoder_Wemb"], shape[1])
    elif weight.kind == "row":
        shape = (1, *shape)
    tensor = Tensor(bytes(tensor.buffer)[: 4 * math.prod(shape)], "F32", shape)
    if weight.kind == "matrix" or weight.name == "decoder_ff_logit_out_W":
        return Tensor(transposed(tensor), "F32", shape[::-1])
    return tensor


def _options(config: Mapping[str, Any], sizes: Sequence[int]) -> dict[str, Any]:
    is_shared = config["share_encoder_decoder_embeddings"]
    is_recurrent = config["decoder_self"] == "ssru"
    return TRANSFORMER | {
        "dim-emb": config["d_model"],
        "dim-vocabs": list(sizes),
        "enc-depth": config["encoder_layers"],
        "dec-depth": config["decoder_layers"],
        "dec-cell": "ssru" if is_recurrent else "gru",
        "transformer-decoder-autoreg": "rnn" if is_recurrent else "self-attention",
        "transformer-dim-ffn": config["encoder_ffn_dim"],
        "transformer-ffn-activation": ACTIVATIONS[config["activation_function"]],
        "transformer-heads": config["encoder_attention_heads"],
        "tied-embeddings": config["tie_word_embeddings"] and not is_shared,
        "tied-embeddings-all": is_shared,
        "tied-embeddings-src": False,
    }


def _yaml(options: Mapping[str, Any]) -> str:
    def scalar(value: Any) -> str:  # JSON is YAML; a word needs no quotes
        return value if isinstance(value, str) and value else json.dumps(value)

    lines = []
    for name, value in sorted(options.items()):
        if isinstance(value, list) and value:
            lines += [f"{name}:", *(f"  - {scalar(item)}" for item in value)]
        else:
            lines.append(f"{name}: {scalar(value)}")
    return "\n".join(lines)


def _numpy(dtype: str, shape: tuple[int, ...], content: bytes | bytearray) -> bytes:
    """Return what is in a `.npy` file."""
    header = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + content
