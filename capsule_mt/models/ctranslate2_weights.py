"""The layers and the weights of a `model.bin` of CTranslate2, by the names of a Capsule Marian or of an M2M100.

CTranslate2 stacks the matrices of an attention that read the same input; here they are parts again.
"""

import math
import re
from array import array
from collections.abc import Iterator
from typing import Any, NamedTuple

from capsule_mt.engine.library import count_invalid
from capsule_mt.engine.program import DTYPES, Codes, Tensor, UnsupportedModelError
from capsule_mt.models import tensors
from capsule_mt.models.ctranslate2_files import CTranslate2File, Variable
from capsule_mt.models.marian_variant import MarianVariant
from capsule_mt.models.marian_weights import PADDING_BIAS
from capsule_mt.models.weights import CheckpointError

SIDES = ("encoder", "decoder")
POSITIONS = "embed_positions.weight"
EPSILON = 1e-5  # of a LayerNorm whose configuration names none
LARGEST_CODE = 127
OLD_INT16_SCALE = 1000.0  # of matrices in int16 without a scale of their own
SINUSOIDS = 1024  # positions of a model that stores none; CTranslate2 has no limit
# by their numbers; the missing ones, an approximation of GELU by the hyperbolic tangent and that itself, are refused
ACTIVATIONS = {0: "relu", 2: "swish", 3: "gelu", 4: "sigmoid_gelu", 6: "sigmoid"}
ACTIVATION_NAMES = {1: "GELU by the hyperbolic tangent", 5: "the hyperbolic tangent"}
# settings that are read here, or do not change translations; before version 6, the file has those of config.json, too
SETTINGS = re.compile(
    r"((en|de)coder/)?(num_heads|pre_norm|activation|embeddings_merge|alignment_(layer|heads))"
    r"|(en|de)coder/(scale_embeddings|embeddings(_0)?/multiply_by_sqrt_depth)|decoder/start_from_zero_embedding"
    r"|(en|de)coder/layer_\d+/(self_)?attention/queries_scale"
    r"|(unk|bos|eos)_token|with_source_[be]os|with_target_bos|user_decoder_start_tokens"
)
# the values that these have in a model without the feature that they belong to; of `None`, any
NEUTRAL = {
    "alibi": 0,
    "alibi_use_positive_positions": None,
    "scale_alibi": None,
    "multi_query": 0,
    "multi_query_attention": 0,
    "layer_scalar": 1,
    "layer_norm_use_residual": 0,
    "final_logit_softcapping": 0,
    "scale_outputs": 1,
    "sliding_window": 0,
}


class Layers(NamedTuple):
    """What the layers of a model are.

    pre_norm: LayerNorm precedes each sublayer; else it follows each.
    norm_embeddings, norm_top: a LayerNorm follows the embeddings, and the last layer.
    zero_start: the decoder first reads zeros, as Marian's does.
    epsilon: added to the variance by every LayerNorm.
    one_vocabulary: whether both languages have the same tokens.
    """

    width: int
    inner_widths: tuple[int, int]
    depths: tuple[int, int]
    heads: tuple[int, int]
    activation: str
    positions: int
    scale_embedding: bool
    pre_norm: bool
    norm_embeddings: bool
    norm_top: bool
    zero_start: bool
    epsilon: float
    one_vocabulary: bool

    @property
    def is_m2m100(self) -> bool:
        """Whether these are the layers of an M2M100, whose program in int8 rounds the tables of tokens, too."""
        others = self.norm_embeddings or self.zero_start or self.activation == "sigmoid_gelu"
        return self.pre_norm and self.norm_top and self.one_vocabulary and self.epsilon == EPSILON and not others

    @property
    def variant(self) -> MarianVariant:
        """The same for the program of Marian's models."""
        return MarianVariant(
            preprocess="n" if self.pre_norm else "",
            postprocess="a" if self.pre_norm else "an",
            postprocess_emb="n" if self.norm_embeddings else "",
            postprocess_top="n" if self.norm_top else "",
            sigmoid_gelu=self.activation == "sigmoid_gelu",
        )


def layers_of(stored: CTranslate2File, *, epsilon: float, one_vocabulary: bool) -> Layers:
    """Read what the layers of a model are; refuse what no program can be written for."""
    reader = _LayerReader(stored)
    width = reader.shape(f"{reader.embeddings('encoder')}/weight", 2)[1]
    depths = reader.depths()
    inner = [reader.shape(f"{side}/layer_0/ffn/linear_0/weight", 2)[0] for side in SIDES]
    heads = reader.heads()
    for side, count in zip(SIDES, heads, strict=True):
        reader.check_attention(side, width, count)
    return Layers(
        width=width,
        inner_widths=(inner[0], inner[1]),
        depths=depths,
        heads=heads,
        activation=reader.activation(),
        positions=min(reader.positions(side, width) for side in SIDES),
        scale_embedding=reader.scales_embeddings(width),
        pre_norm=reader.flag("pre_norm", True),
        norm_embeddings=reader.has_norm("layernorm_embedding"),
        norm_top=reader.has_norm("layer_norm"),
        zero_start=bool(stored.scalar("decoder/start_from_zero_embedding")),
        epsilon=epsilon,
        one_vocabulary=one_vocabulary,
    )


class _LayerReader:
    """Reads what both sides of a model must agree on."""

    def __init__(self, stored: CTranslate2File) -> None:
        self._stored = stored
        _refuse_unknown(stored)

    def _unsupported(self, message: str) -> UnsupportedModelError:
        return UnsupportedModelError(f"{self._stored.file}: {message}")

    def shape(self, name: str, dimensions: int) -> tuple[int, ...]:
        variable = self._stored.variables.get(name)
        if variable is None:
            raise CheckpointError(f"{self._stored.file}: lacks `{name}`")
        if len(variable.shape) != dimensions or 0 in variable.shape:
            raise CheckpointError(
                f"{self._stored.file}: `{name}` is {list(variable.shape)}, but must have {dimensions} dimensions"
            )
        return variable.shape

    def embeddings(self, side: str) -> str:
        return embeddings_of(self._stored, side)

    def depths(self) -> tuple[int, int]:
        names = self._stored.variables
        encoder, decoder = (
            next(index for index in range(len(names) + 1) if f"{side}/layer_{index}/ffn/linear_0/weight" not in names)
            for side in SIDES
        )
        return encoder, decoder

    def _setting(self, name: str, default: float | None = None) -> tuple[float, float]:
        """Return a setting of both sides, from their own variables or that of the model."""
        values = []
        for side in SIDES:
            numbers = (self._stored.scalar(path) for path in (f"{side}/{name}", name))
            value = next((number for number in numbers if number is not None), default)
            if value is None:
                raise CheckpointError(f"{self._stored.file}: lacks `{side}/{name}`")
            values.append(value)
        return values[0], values[1]

    def _agreed(self, name: str, values: tuple[float, float]) -> float:
        if values[0] != values[1]:
            raise self._unsupported(
                f"`{name}` is {values[0]:g} in the encoder and {values[1]:g} in the decoder, which must agree"
            )
        return values[0]

    def flag(self, name: str, default: bool) -> bool:
        return bool(self._agreed(name, self._setting(name, default)))

    def heads(self) -> tuple[int, int]:
        encoder, decoder = self._setting("num_heads", self._stored.default_heads)
        for value in (encoder, decoder):
            if not 1 <= value <= 2**15 or value != int(value):
                raise CheckpointError(f"{self._stored.file}: `num_heads` must be a number from 1 on, got {value:g}")
        return int(encoder), int(decoder)

    def activation(self) -> str:
        number = int(self._agreed("activation", self._setting("activation", 0)))
        if number not in ACTIVATIONS:
            name, accepted = ACTIVATION_NAMES.get(number, "not known"), ", ".join(ACTIVATIONS.values())
            raise self._unsupported(f"`activation` {number} ({name}) is not supported, only {accepted}")
        return ACTIVATIONS[number]

    def has_norm(self, name: str) -> bool:
        encoder, decoder = (f"{side}/{name}/gamma" in self._stored.variables for side in SIDES)
        return bool(self._agreed(name, (encoder, decoder)))

    def scales_embeddings(self, width: int) -> bool:
        """Return whether embeddings are multiplied by the root of their width; else they stay as they are."""
        root = math.sqrt(width)
        scales = []
        for side in SIDES:
            paths = (f"{side}/scale_embeddings", f"{self.embeddings(side)}/multiply_by_sqrt_depth")
            path = next((path for path in paths if path in self._stored.variables), None)
            scale = root if path is None else self._stored.scalar(path) or 0.0
            if path is not None and self._stored.variables[path].dtype == "I8":  # a flag
                scale = root if scale else 1.0
            if not any(math.isclose(scale, accepted, rel_tol=1e-3) for accepted in (1.0, root)):
                raise self._unsupported(f"`{path}` {scale:g} is not supported, only 1 and the root of {width}")
            scales.append(math.isclose(scale, root, rel_tol=1e-3))
        return bool(self._agreed("scale_embeddings", (scales[0], scales[1])))

    def positions(self, side: str, width: int) -> int:
        """Return how many positions a side has."""
        name = f"{side}/position_encodings/encodings"
        if name in self._stored.variables:
            return self.shape(name, 2)[0]
        if width < 4 or width % 2:
            raise self._unsupported(f"lacks `{name}`, and sinusoids need an even width from 4 on, not {width}")
        return SINUSOIDS

    def check_attention(self, side: str, width: int, heads: int) -> None:
        """Refuse queries with another factor than 1 / sqrt(the width of a head)."""
        if width % heads:
            raise self._unsupported(f"`{side}/num_heads` {heads} must divide the width {width}")
        expected = 1 / math.sqrt(width // heads)
        for name in self._stored.variables:
            if name.startswith(f"{side}/") and name.endswith("/queries_scale"):
                scale = self._stored.scalar(name)
                if scale is None or not math.isclose(scale, expected, rel_tol=1e-3):
                    raise self._unsupported(f"`{name}` {scale:g} is not supported, only {expected:g}")


def embeddings_of(stored: CTranslate2File, side: str) -> str:
    """Return the name of a side's embeddings; the encoder's may be numbered, as there may be factors."""
    name = f"{side}/embeddings"
    return name if f"{name}/weight" in stored.variables else f"{name}_0"


def _refuse_unknown(stored: CTranslate2File) -> None:
    """Refuse settings of features that no program can be written for."""
    for name in stored.variables:
        setting = name.rpartition("/")[2]
        if setting in NEUTRAL:
            value, neutral = stored.scalar(name), NEUTRAL[setting]
            if neutral is not None and value != neutral:
                raise UnsupportedModelError(f"{stored.file}: `{name}` {value:g} is not supported, only {neutral}")


class Part(NamedTuple):
    """Rows of a variable, and rows of an added token after them.

    variable: `None` for what the model lacks: a bias of zeros, or sinusoids.
    """

    variable: Variable | None
    first: int
    rows: int
    added_rows: int = 0


class CTranslate2Weights:
    """The weights of a file by the names of a model of transformers: see `capsule_mt.models.weights.Weights`.

    shares_embeddings: whether both languages have one table; ties_output: whether the output has the target's.
    """

    def __init__(self, stored: CTranslate2File, layers: Layers) -> None:
        self._stored, self._layers = stored, layers
        self._parts: dict[str, Part] = {}
        self._used: set[str] = set()
        self.shares_embeddings, self.ties_output = self._add_tables()
        for side, depth in zip(SIDES, layers.depths, strict=True):
            self._add_ends(side)
            for index in range(depth):
                self._add_layer(side, index)
        self._refuse_unused()

    def __contains__(self, name: object) -> bool:
        return name in self._parts

    def __iter__(self) -> Iterator[str]:
        return iter(self._parts)

    def shape(self, name: str) -> tuple[int, ...]:
        if name not in self._parts:
            raise self.problem(name, f"lacks `{name}`")
        part = self._parts[name]
        rows = part.rows + part.added_rows
        if name == "final_logits_bias":
            return (1, rows)
        if part.variable is None and name.endswith(POSITIONS):
            return (rows, self._layers.width)
        return (rows, *(part.variable.shape[1:] if part.variable else ()))

    def read(self, name: str) -> Tensor | Codes:
        part = self._parts[name]
        if name.endswith(POSITIONS) and part.variable is None:
            return _sinusoids(part.rows, self._layers.width)
        if part.variable is None:
            tensor: Tensor | Codes = tensors.of_floats([0.0] * part.rows, (part.rows,))
        else:
            tensor = self._read(part.variable, part.first, part.rows)
        if name == "final_logits_bias":
            numbers = [*tensors.floats(tensors.decoded(tensor)), *[PADDING_BIAS] * part.added_rows]
            return tensors.of_floats(numbers, (1, len(numbers)))
        return _with_zeros(tensor, part.added_rows) if part.added_rows else tensor

    def problem(self, name: str, message: str) -> ValueError:
        return CheckpointError(f"{self._stored.file}: {message}")

    # ---- which variable is which weight
    def _add(self, name: str, stored_name: str, rows: int = 0, first: int = 0, added_rows: int = 0) -> None:
        """Name all rows of a variable, or `rows` of them."""
        variable = self._stored.variables.get(stored_name)
        if variable is None:
            raise CheckpointError(f"{self._stored.file}: lacks `{stored_name}`")
        if not variable.shape or variable.shape[0] < first + rows:
            raise CheckpointError(
                f"{self._stored.file}: `{stored_name}` is {list(variable.shape)}, but must have {first + rows} rows"
            )
        self._used |= {stored_name, f"{stored_name}_scale"}
        self._parts[name] = Part(variable, first, rows or variable.shape[0], added_rows)

    def _add_tables(self) -> tuple[bool, bool]:
        """Add the tables of tokens and the output; return `shares_embeddings` and `ties_output`."""
        added_rows, variables = int(self._layers.zero_start), self._stored.variables
        source, target = (f"{embeddings_of(self._stored, side)}/weight" for side in SIDES)
        output, bias = "decoder/projection/weight", "decoder/projection/bias"
        shares = self._layers.one_vocabulary and variables.get(source) == variables.get(target)
        ties = variables.get(target) == variables.get(output) and (shares or not self._layers.is_m2m100)
        if shares:
            self._add("model.shared.weight", source, added_rows=added_rows)
        else:
            self._add("model.encoder.embed_tokens.weight", source)
            self._add("model.decoder.embed_tokens.weight", target, added_rows=added_rows)
        if not ties:
            self._add("lm_head.weight", output, added_rows=added_rows)
        self._used |= {f"{name}{end}" for name in (source, target, output) for end in ("", "_scale")}
        rows = variables[output].shape[0]
        if bias in variables:
            self._add("final_logits_bias", bias, rows, added_rows=added_rows)
        elif added_rows:
            self._parts["final_logits_bias"] = Part(None, 0, rows, added_rows)
        return shares, ties

    def _add_ends(self, side: str) -> None:
        """Add the positions, and the norms before the first layer of a side and after the last."""
        name, positions = f"model.{side}.{POSITIONS}", f"{side}/position_encodings/encodings"
        if positions in self._stored.variables:
            self._add(name, positions, self._layers.positions)
        else:
            self._parts[name] = Part(None, 0, self._layers.positions)
        if self._layers.norm_embeddings:
            self._add_norm(f"model.{side}.emb_pre_norm", f"{side}/layernorm_embedding")
        if self._layers.norm_top:
            top = "layer_norm" if self._layers.is_m2m100 else "top_layer_norm"
            self._add_norm(f"model.{side}.{top}", f"{side}/layer_norm")

    def _add_layer(self, side: str, index: int) -> None:
        layer, stored = f"model.{side}.layers.{index}", f"{side}/layer_{index}"
        self._add_attention(f"{layer}.self_attn", f"{stored}/self_attention", ["qkv", "o"])
        if side == "decoder":
            self._add_attention(f"{layer}.encoder_attn", f"{stored}/attention", ["q", "kv", "o"])
        for number in (0, 1):
            rows = (self._layers.inner_widths[SIDES.index(side)], self._layers.width)[number]
            self._add_linears([f"{layer}.fc{number + 1}"], f"{stored}/ffn/linear_{number}", rows)
        self._add_norm(f"{layer}.final{self._norm}", f"{stored}/ffn/layer_norm")

    @property
    def _norm(self) -> str:
        return "_pre_norm" if self._layers.pre_norm and not self._layers.is_m2m100 else "_layer_norm"

    def _add_attention(self, name: str, stored: str, stacks: list[str]) -> None:
        for number, letters in enumerate(stacks):
            modules = [f"{name}.{'out' if letter == 'o' else letter}_proj" for letter in letters]
            self._add_linears(modules, f"{stored}/linear_{number}", self._layers.width)
        self._add_norm(f"{name}{self._norm}", f"{stored}/layer_norm")

    def _add_linears(self, modules: list[str], stored: str, rows: int) -> None:
        """Add linear maps of `rows` outputs that are stored as one; a bias that is missing is zeros."""
        for name in (f"{stored}/weight", f"{stored}/bias"):
            variable = self._stored.variables.get(name)
            expected = len(modules) * rows
            if variable is not None and variable.shape[:1] != (expected,):
                raise CheckpointError(
                    f"{self._stored.file}: `{name}` is {list(variable.shape)}, but must have {expected} rows"
                )
        for index, module in enumerate(modules):
            self._add(f"{module}.weight", f"{stored}/weight", rows, index * rows)
            if f"{stored}/bias" in self._stored.variables:
                self._add(f"{module}.bias", f"{stored}/bias", rows, index * rows)
            else:
                self._parts[f"{module}.bias"] = Part(None, 0, rows)

    def _add_norm(self, name: str, stored: str) -> None:
        if f"{stored}/beta" not in self._stored.variables and f"{stored}/gamma" in self._stored.variables:
            raise UnsupportedModelError(
                f"{self._stored.file}: `{stored}` lacks `beta`: a norm by the root mean square is not supported"
            )
        self._add(f"{name}.weight", f"{stored}/gamma")
        self._add(f"{name}.bias", f"{stored}/beta")

    def _refuse_unused(self) -> None:
        for name in self._stored.variables:
            is_setting = SETTINGS.fullmatch(name) or name.rpartition("/")[2] in NEUTRAL
            if name not in self._used and not is_setting:
                raise UnsupportedModelError(
                    f"{self._stored.file}: `{name}` is not supported: translate with CTranslate2 itself"
                )

    # ---- numbers
    def _read(self, variable: Variable, first: int, rows: int) -> Tensor | Codes:
        shape = (rows, *variable.shape[1:])
        content = self._stored.content(variable, first, rows)
        if variable.dtype == "I8":
            codes = Tensor(content, "I8", shape)
            if count_invalid(codes):
                raise self.problem("", f"`{variable.name}` has the code -128, which no number is rounded to")
            if len(shape) != 2:
                raise self.problem("", f"`{variable.name}` is {list(shape)} in int8, but must be a matrix")
            return Codes(codes, self._magnitudes(variable, first, rows))
        if variable.dtype == "I16":
            has_scale = f"{variable.name}_scale" in self._stored.variables
            scale = self._scales(variable, 0, 1)[0] if has_scale else OLD_INT16_SCALE
            numbers = array("f", memoryview(content).cast("B").cast("h"))
            return tensors.scaled(Tensor(numbers, "F32", shape), 1 / scale)
        if variable.dtype not in DTYPES:
            raise self.problem("", f"`{variable.name}` is saved as {variable.dtype}, not as a weight")
        tensor = Tensor(content, variable.dtype, shape)
        if num_not_finite := count_invalid(tensor):
            raise self.problem(
                "", f"`{variable.name}` has {num_not_finite} of {tensor.size} numbers that are not finite"
            )
        return tensor

    def _magnitudes(self, variable: Variable, first: int, rows: int) -> Tensor:
        """Return the largest magnitude of each row of codes: a weight is its code divided by the row's scale."""
        scales = self._scales(variable, first, rows)
        return tensors.of_floats((LARGEST_CODE / scale for scale in scales), (rows,))

    def _scales(self, variable: Variable, first: int, rows: int) -> "array[float]":
        """Return the scales of some rows of a matrix in int8, or the scale that all rows share, as in int16."""
        name = f"{variable.name}_scale"
        scale = self._stored.variables.get(name)
        if scale is None:
            raise self.problem("", f"lacks `{name}`, which `{variable.name}` needs")
        is_shared = math.prod(scale.shape) == 1
        by_rows = variable.dtype == "I8" and scale.shape == variable.shape[:1]
        if scale.dtype != "F32" or not (is_shared or by_rows):
            expected = "one F32, or one for each row" if variable.dtype == "I8" else "one F32"
            raise self.problem("", f"`{name}` is {scale.dtype} {list(scale.shape)}, but must be {expected}")
        content = self._stored.content(scale, 0, None) if is_shared else self._stored.content(scale, first, rows)
        numbers = Tensor(content, "F32", (1 if is_shared else rows,))
        scales = tensors.floats(numbers)
        if count_invalid(numbers) or min(scales) <= 0:
            raise self.problem("", f"`{name}` must have finite numbers above 0")
        return scales * rows if is_shared else scales


def _with_zeros(tensor: Tensor | Codes, rows: int) -> Tensor | Codes:
    """Return a matrix with rows of zeros after its own."""
    if isinstance(tensor, Codes):
        codes, magnitudes = tensor
        longer = tensors.of_floats([*tensors.floats(magnitudes), *[1.0] * rows], (codes.shape[0] + rows,))
        return Codes(_longer(codes, rows), longer)
    return _longer(tensor, rows)


def _longer(tensor: Tensor, rows: int) -> Tensor:
    zeros = bytes(rows * math.prod(tensor.shape[1:]) * DTYPES[tensor.dtype])
    return Tensor(b"".join((tensor.buffer, zeros)), tensor.dtype, (tensor.shape[0] + rows, *tensor.shape[1:]))


def _sinusoids(count: int, width: int) -> Tensor:
    """Return the positions of a model that stores none, as CTranslate2 computes them: the first has the number 1."""
    frequencies = [10000 ** (-index / (width // 2 - 1)) for index in range(width // 2)]
    rows = ([position * frequency for frequency in frequencies] for position in range(1, count + 1))
    numbers: list[float] = []
    for angles in rows:
        numbers += [*map(math.sin, angles), *map(math.cos, angles)]
    return tensors.of_floats(numbers, (count, width))


def config_of(layers: Layers, weights: CTranslate2Weights, sizes: tuple[int, int]) -> dict[str, Any]:
    """Return the configuration of a model of transformers with these layers.

    Args:
        sizes: the numbers of source and target tokens, with those that were added.
    """
    kind = (
        {"model_type": "m2m_100"}
        if layers.is_m2m100
        else {"model_type": "capsule_marian", "marian_variant": layers.variant, "layer_norm_eps": layers.epsilon}
    )
    return {
        **kind,
        "d_model": layers.width,
        "encoder_layers": layers.depths[0],
        "decoder_layers": layers.depths[1],
        "encoder_attention_heads": layers.heads[0],
        "decoder_attention_heads": layers.heads[1],
        "encoder_ffn_dim": layers.inner_widths[0],
        "decoder_ffn_dim": layers.inner_widths[1],
        "activation_function": "gelu" if layers.activation == "sigmoid_gelu" else layers.activation,
        "scale_embedding": layers.scale_embedding,
        "max_position_embeddings": layers.positions,
        "vocab_size": sizes[0],
        "decoder_vocab_size": sizes[1],
        "share_encoder_decoder_embeddings": weights.shares_embeddings,
        "tie_word_embeddings": weights.ties_output,
    }
