"""The weights in a file of Marian's, by the names of a Capsule Marian."""

import math
from array import array
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from capsule_mt.engine.library import widened
from capsule_mt.engine.program import Codes, Tensor, UnsupportedModelError
from capsule_mt.messages import shown
from capsule_mt.models.marian_files import OPTIONS, TABLES, MarianFile, read_matrix, read_numbers
from capsule_mt.models.marian_variant import MarianVariant
from capsule_mt.models.weights import CheckpointError

# the padding token's bias: it is never generated, and label smoothing stays finite
PADDING_BIAS = -100.0
SHARED = "Wemb"  # the table of both languages
UNTIED = "decoder_ff_logit_out_Wt"  # a separate output matrix; Marian before 1.9 stores its transpose, without the "t"


class StoredWeight(NamedTuple):
    """A weight in a file of Marian's.

    kind: "matrix", "table" of tokens, "row", or "bias" of tokens.
    """

    name: str
    kind: str


def stored_weights_of(config: Mapping[str, Any], max_layers: int, file: str) -> dict[str, StoredWeight]:
    """Return for each weight of a Capsule Marian the weight of Marian's file that it is stored as."""
    weights = _StoredWeights(config)
    weights.add_embeddings()
    for side in ("encoder", "decoder"):
        depth = config[f"{side}_layers"]
        if type(depth) is not int or not 1 <= depth <= max_layers:
            raise CheckpointError(f"{file}: `{side[:3]}-depth` is {shown(depth)}, but it has weights for fewer layers")
        weights.add_ends(side)
        for index in range(depth):
            weights.add_layer(side, index)
    return weights.by_name


class _StoredWeights:
    """A table of weights that grows by the layers of a model."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._config = config
        self._variant = config.get("marian_variant") or MarianVariant(decoder_self=config["decoder_self"])
        self.by_name: dict[str, StoredWeight] = {}

    def add_embeddings(self) -> None:
        """Add the tables of tokens, and the bias of the output."""
        self.by_name["final_logits_bias"] = StoredWeight("decoder_ff_logit_out_b", "bias")
        if self._config["share_encoder_decoder_embeddings"]:
            self.by_name["model.shared.weight"] = StoredWeight(SHARED, "table")
        else:
            for side in ("encoder", "decoder"):
                self.by_name[f"model.{side}.embed_tokens.weight"] = StoredWeight(f"{side}_{SHARED}", "table")
        if not self._config["tie_word_embeddings"]:
            self.by_name["lm_head.weight"] = StoredWeight("decoder_ff_logit_out_W", "table")

    def add_ends(self, side: str) -> None:
        """Add the norms and the gate before the first layer of a side and after the last."""
        self._add_norm(f"model.{side}.emb_pre_norm", f"{side}_emb", self._variant.postprocess_emb, "_pre")
        self._add_norm(f"model.{side}.top_layer_norm", f"{side}_top", self._variant.postprocess_top)
        if "h" in self._variant.postprocess_top:
            self._add_map(f"model.{side}.top_gate", f"{side}_top_Wh", f"{side}_top_bh")

    def add_layer(self, side: str, index: int) -> None:
        variant = self._variant
        layer_number = variant.tied_layers[index] if side == "decoder" and variant.tied_layers else index + 1
        layer, stored = f"model.{side}.layers.{index}", f"{side}_l{layer_number}"
        if side == "encoder" or variant.decoder_self == "attention":
            self._add_attention(f"{layer}.self_attn", f"{stored}_self")
        else:
            self._add_past(f"{layer}.self_attn", stored)
        if side == "decoder":
            self._add_attention(f"{layer}.encoder_attn", f"{stored}_context")
        for number in range(1, getattr(variant, f"{side}_ffn_depth") + 1):
            self._add_map(f"{layer}.fc{number}", f"{stored}_ffn_W{number}", f"{stored}_ffn_b{number}")
        self._add_norms(f"{layer}.final", f"{stored}_ffn_ffn")

    def _add_map(self, name: str, weight: str, bias: str | None = None) -> None:
        self.by_name[f"{name}.weight"] = StoredWeight(weight, "matrix")
        if bias is not None:
            self.by_name[f"{name}.bias"] = StoredWeight(bias, "row")

    def _add_norm(self, name: str, stored: str, steps: str, suffix: str = "") -> None:
        if "n" in steps:
            for parameter, stored_parameter in (("weight", "scale"), ("bias", "bias")):
                self.by_name[f"{name}.{parameter}"] = StoredWeight(f"{stored}_ln_{stored_parameter}{suffix}", "row")
        if "r" in steps:
            self.by_name[f"{name}_rms.weight"] = StoredWeight(f"{stored}_rms_scale{suffix}", "row")

    def _add_norms(self, name: str, stored: str, stored_before: str | None = None) -> None:
        """Add the norms and the gate around a layer; `stored_before` names the input's norm if it is not `stored`."""
        self._add_norm(f"{name}_pre_norm", stored_before or stored, self._variant.preprocess, "_pre")
        self._add_norm(f"{name}_layer_norm", stored, self._variant.postprocess)
        if "h" in self._variant.postprocess:
            self._add_map(f"{name}_gate", f"{stored}_Wh", f"{stored}_bh")

    def _add_attention(self, name: str, stored: str) -> None:
        for letter, projection in zip("qkvo", ("q_proj", "k_proj", "v_proj", "out_proj"), strict=True):
            if letter != "o" or self._variant.attention_projection:
                self._add_map(f"{name}.{projection}", f"{stored}_W{letter}", f"{stored}_b{letter}")
        self._add_norms(name, f"{stored}_Wo")

    def _add_past(self, name: str, stored: str) -> None:
        """Add the weights of what replaces a decoder layer's self-attention."""
        if self._variant.decoder_self == "average":
            self._add_average(name, f"{stored}_aan")
            self._add_norms(name, f"{stored}_aan_ffn")
            return
        stored = f"{stored}_rnn"
        if self._variant.decoder_self == "ssru":
            self._add_map(f"{name}.forget_gate", f"{stored}_Wf", f"{stored}_bf")
            self._add_map(f"{name}.input_map", f"{stored}_W")
            if self._variant.ssru_layer_norm:
                self.by_name[f"{name}.forget_norm.weight"] = StoredWeight(f"{stored}_gammaf", "row")
                self.by_name[f"{name}.input_norm.weight"] = StoredWeight(f"{stored}_gamma", "row")
        else:
            self._add_map(f"{name}.input_gates", f"{stored}_W", f"{stored}_b")
            self._add_map(f"{name}.input_candidate", f"{stored}_Wx", f"{stored}_bx")
            self._add_map(f"{name}.state_gates", f"{stored}_U")
            self._add_map(f"{name}.state_candidate", f"{stored}_Ux")
        if self._variant.rnn_projection:
            self._add_map(f"{name}.out_proj", f"{stored}_Wo", f"{stored}_bo")
        self._add_norms(name, f"{stored}_ffn", stored)

    def _add_average(self, name: str, stored: str) -> None:
        depth = self._variant.average_ffn_depth
        # the last of `depth` maps is left out if its input has the width of the model already
        has_last = depth < 2 or self._variant.average_ffn_dim != self._config["d_model"]
        for number in range(1, depth + has_last):
            self._add_map(f"{name}.fc{number}", f"{stored}_W{number}", f"{stored}_b{number}")
        for gate in ("input", "forget") if self._variant.average_gates else ():
            self._add_map(f"{name}.{gate}_gate", f"{stored}_W{gate[0]}", f"{stored}_b{gate[0]}")


class MarianWeights:
    """The weights of a file by the names of a Capsule Marian: see `capsule_mt.models.weights.Weights`.

    Args:
        targets_without_bias: the number of target tokens, if the model has no bias for them. Their bias is then zeros:
            the padding tokens that follow need a bias.
    """

    def __init__(
        self, stored: MarianFile, config: Mapping[str, Any], *, targets_without_bias: int | None = None
    ) -> None:
        self._stored, self.size, self._targets_without_bias = stored, config["vocab_size"], targets_without_bias
        self._stored_weights = stored_weights_of(config, len(stored.items), stored.file)
        if SHARED in stored.items:  # transformers has the table twice if the output matrix is separate
            tables = [name for name, weight in self._stored_weights.items() if weight.name.endswith(f"_{SHARED}")]
            self._stored_weights |= {name: StoredWeight(SHARED, "table") for name in tables}
        if UNTIED in stored.items and "lm_head.weight" in self._stored_weights:
            if stored.items[UNTIED].dtype == "CODES":
                raise UnsupportedModelError(f"{stored.file}: `{UNTIED}` in int8 is not read, only in float32")
            self._stored_weights["lm_head.weight"] = StoredWeight(UNTIED, "table")
        used = {weight.name for weight in self._stored_weights.values() if not self._is_omitted(weight)} | {OPTIONS}
        for name in stored.items:
            if name not in used and not name.endswith("_QuantMultA"):
                raise UnsupportedModelError(f"{stored.file}: has `{name}`, which {OPTIONS} does not describe")

    def __contains__(self, name: object) -> bool:
        weight = self._stored_weights.get(str(name))
        return weight is not None and (weight.kind == "bias" or weight.name in self._stored.items)

    def _is_omitted(self, weight: StoredWeight) -> bool:
        return weight.kind == "bias" and self._targets_without_bias is not None

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._stored_weights if name in self)

    def shape(self, name: str) -> tuple[int, ...]:
        weight = self._stored_weights.get(name, StoredWeight(name, "matrix"))
        if self._is_omitted(weight):
            return (1, self.size)
        if weight.name not in self._stored.items:
            raise self.problem(name, f"lacks `{weight.name}`, which {OPTIONS} requires")
        shape = self._stored.items[weight.name].shape
        is_row = weight.kind in ("row", "bias")
        if len(shape) != 2 or (is_row and shape[0] != 1):
            raise self.problem(
                name, f"`{weight.name}` is {list(shape)}, which is not a {'row' if is_row else 'matrix'}"
            )
        if weight.kind == "row":
            return shape[1:]
        if weight.kind == "bias":
            return (1, shape[1] + self._num_padding(weight.name, shape[1]))
        outputs, inputs = shape if weight.name.endswith(TABLES) else shape[::-1]
        return (outputs + self._num_padding(weight.name, outputs) if weight.kind == "table" else outputs, inputs)

    def read(self, name: str) -> Tensor | Codes:
        weight, shape = self._stored_weights[name], self.shape(name)
        if self._is_omitted(weight):
            targets = self._targets_without_bias or 0
            bias = array("f", [0.0] * targets + [PADDING_BIAS] * (self.size - targets))
            return Tensor(bias.tobytes(), "F32", shape)
        if weight.kind in ("row", "bias"):
            numbers = widened(read_numbers(self._stored, weight.name))
            missing = math.prod(shape) - numbers.size
            content = bytes(numbers.buffer) + array("f", [PADDING_BIAS] * missing).tobytes()
            return Tensor(content, "F32", shape)
        num_stored_rows = math.prod(self._stored.items[weight.name].shape) // shape[1]
        return read_matrix(self._stored, weight.name, shape[0] - num_stored_rows)

    def problem(self, name: str, message: str) -> ValueError:
        return CheckpointError(f"{self._stored.file}: {message}")

    def _num_padding(self, name: str, tokens: int) -> int:
        if tokens >= self.size:
            raise self.problem(
                name, f"`{name}` has {tokens} tokens, but the vocabularies have at most {self.size - 1}"
            )
        return self.size - tokens
