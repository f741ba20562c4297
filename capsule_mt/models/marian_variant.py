"""Features of Marian's models that a Capsule Marian lacks, read from a model's options.

`capsule_mt.models.marian` writes the operations.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from capsule_mt.engine.program import UnsupportedModelError
from capsule_mt.messages import shown
from capsule_mt.models.weights import CheckpointError

# Marian computed GELU(x) as x sigmoid(1.702 x) before this version, and with the error function since
EXACT_GELU = (1, 12, 3)
SIGMOID_GELU_SCALE = 1.702
# before this version, `transformer-preprocess` did not apply to the keys and values of self-attention
NORMALISED_KEYS = (1, 10, 28)
# the newest Marian whose files were compared; a later one may compute something else by the same options
NEWEST = (1, 12)
MAX_FFN_DEPTH = 16
ACTIVATIONS = {"relu": "relu", "swish": "swish", "gelu": "gelu", "sigmoid": "sigmoid"}
# how a decoder layer reads the past tokens, by `transformer-decoder-autoreg` and, for "rnn", `dec-cell`
DECODER_PASTS = {
    ("self-attention", None): "attention",
    ("average-attention", None): "average",
    ("rnn", "ssru"): "ssru",
    ("rnn", "gru"): "gru",
}


class MarianVariant(NamedTuple):
    """How the layers of a model differ from a Capsule Marian's, which the defaults of the fields describe.

    preprocess, postprocess, postprocess_emb, postprocess_top: the steps around a layer, after the embeddings and after
        the last layer, in order: "a" adds the layer's input, "n" normalises, "r" normalises by the root mean square,
        "h" mixes the layer's input and output by a gate. Dropout, "d", is left out.
    normalises_keys: self-attention reads keys and values after `preprocess`, too.
    decoder_self: "average" and "gru" beside the values of a Capsule Marian.
    tied_layers: for each decoder layer, the number (from 1) of the layer whose weights it shares; empty without ties.
    """

    preprocess: str = ""
    postprocess: str = "an"
    postprocess_emb: str = ""
    postprocess_top: str = ""
    normalises_keys: bool = True
    decoder_self: str = "attention"
    tied_layers: tuple[int, ...] = ()
    encoder_ffn_depth: int = 2
    decoder_ffn_depth: int = 2
    ssru_layer_norm: bool = False
    rnn_projection: bool = False
    attention_projection: bool = True
    average_ffn_dim: int = 0
    average_ffn_depth: int = 2
    average_activation: str = "swish"
    average_gates: bool = True
    sigmoid_gelu: bool = False
    has_positions: bool = True
    odd_width: bool = False

    def first_option_beyond_capsule_marian(self) -> str | None:
        """Return the first option that transformers' checkpoints cannot represent; `None` if there is none."""
        defaults = MarianVariant(decoder_self="ssru" if self.decoder_self == "ssru" else "attention")
        for field, value, default in zip(self._fields, self, defaults, strict=True):
            if field in OPTION_NAMES and value != default:
                return OPTION_NAMES[field]
        return None


# the option behind each field that transformers' checkpoints cannot represent
OPTION_NAMES = {
    "preprocess": "transformer-preprocess",
    "postprocess": "transformer-postprocess",
    "postprocess_emb": "transformer-postprocess-emb",
    "postprocess_top": "transformer-postprocess-top",
    "decoder_self": "transformer-decoder-autoreg",
    "tied_layers": "transformer-tied-layers",
    "encoder_ffn_depth": "transformer-ffn-depth",
    "decoder_ffn_depth": "transformer-decoder-ffn-depth",
    "ssru_layer_norm": "layer-normalization",
    "rnn_projection": "transformer-rnn-projection",
    "attention_projection": "transformer-no-projection",
    "sigmoid_gelu": "transformer-ffn-activation",
    "has_positions": "transformer-disable-position-embeddings",
    "odd_width": "dim-emb",
}
# the options that `variant_of` reads
OPTIONS_READ = frozenset(
    {
        *OPTION_NAMES.values(),
        *("dec-cell", "transformer-aan-activation", "transformer-aan-depth", "transformer-aan-nogate"),
        "transformer-dim-aan",
    }
)


def variant_of(options: Mapping[str, Any], origin: str) -> MarianVariant:
    """Return the variant that a model's options describe.

    Args:
        origin: the file of the options, for errors.
    """
    read = _OptionReader(options, origin)
    version = read.version()
    preprocess = read.steps("transformer-preprocess", "nr")
    autoreg = read.choice("transformer-decoder-autoreg", {name: name for name, _ in DECODER_PASTS}, "self-attention")
    cells = {cell: kind for (name, cell), kind in DECODER_PASTS.items() if name == autoreg}
    decoder_self = cells[None] if None in cells else read.choice("dec-cell", cells, "gru")
    is_recurrent, normalises_states = autoreg == "rnn", read.flag("layer-normalization")
    if decoder_self == "gru" and normalises_states:
        raise UnsupportedModelError(
            f"{origin}: `layer-normalization` True is not supported with `dec-cell` 'gru', only with 'ssru'"
        )
    encoder_depth = read.number("transformer-ffn-depth", 2, MAX_FFN_DEPTH)
    activation = read.choice("transformer-ffn-activation", ACTIVATIONS, "swish")
    if version is None and (preprocess or activation == "gelu"):
        raise UnsupportedModelError(
            f"{origin}: lacks `version`, on which the meaning of `transformer-"
            f"{'preprocess' if preprocess else 'ffn-activation'}` depends: write the version of the Marian that "
            "trained the model, such as `version: v1.9.0`, into a decoder.yml beside it"
        )
    version = version or NEWEST  # the rest means the same in every version
    return MarianVariant(
        preprocess=preprocess,
        postprocess=read.steps("transformer-postprocess", "anrh", "dan"),
        postprocess_emb=read.steps("transformer-postprocess-emb", "nr"),
        postprocess_top=read.steps("transformer-postprocess-top", "anrh"),
        normalises_keys=version >= NORMALISED_KEYS,
        decoder_self=decoder_self,
        tied_layers=read.layer_numbers("transformer-tied-layers"),
        encoder_ffn_depth=encoder_depth,
        decoder_ffn_depth=read.number("transformer-decoder-ffn-depth", 0, MAX_FFN_DEPTH) or encoder_depth,
        ssru_layer_norm=decoder_self == "ssru" and normalises_states,
        rnn_projection=is_recurrent and read.flag("transformer-rnn-projection"),
        attention_projection=not read.flag("transformer-no-projection"),
        average_ffn_dim=read.number("transformer-dim-aan", 2048),
        average_ffn_depth=read.number("transformer-aan-depth", 2, MAX_FFN_DEPTH),
        average_activation=read.choice("transformer-aan-activation", ACTIVATIONS, "swish"),
        average_gates=not read.flag("transformer-aan-nogate"),
        sigmoid_gelu=activation == "gelu" and version < EXACT_GELU,
        has_positions=not read.flag("transformer-disable-position-embeddings"),
        odd_width=read.number("dim-emb", 512) % 2 == 1,
    )


class _OptionReader:
    """Read and check Marian's options; a missing option takes the default, which is Marian's."""

    def __init__(self, options: Mapping[str, Any], origin: str) -> None:
        self._options, self._origin = options, origin

    def _value(self, name: str, default: Any, is_valid: Callable[[Any], bool], accepted: str) -> Any:
        value = self._options.get(name)
        value = default if value is None else value
        if not is_valid(value):
            raise UnsupportedModelError(f"{self._origin}: `{name}` {shown(value)} is not supported, only {accepted}")
        return value

    def number(self, name: str, default: int, maximum: int = 2**27) -> int:
        def is_valid(value: object) -> bool:
            return type(value) is int and 0 <= value <= maximum

        return int(self._value(name, default, is_valid, f"a number from 0 to {maximum}"))

    def flag(self, name: str) -> bool:
        return bool(self._value(name, False, lambda value: isinstance(value, bool), "true or false"))

    def choice(self, name: str, choices: Mapping[Any, str], default: str) -> str:
        accepted = " or ".join(repr(choice) for choice in choices)
        return choices[self._value(name, default, lambda value: isinstance(value, str) and value in choices, accepted)]

    def steps(self, name: str, letters: str, default: str = "") -> str:
        def is_valid(value: object) -> bool:
            return isinstance(value, str) and set(value) <= {"d", *letters} and len(value) <= 8

        return str(self._value(name, default, is_valid, f"up to 8 of the letters d{letters}")).replace("d", "")

    def layer_numbers(self, name: str) -> tuple[int, ...]:
        depth = self._options.get("dec-depth")

        def is_valid(value: object) -> bool:
            return isinstance(value, list) and all(type(layer) is int and layer > 0 for layer in value)

        layers = tuple(self._value(name, [], is_valid, "a list of layers, which count from 1"))
        if layers and len(layers) != depth:
            raise CheckpointError(
                f"{self._origin}: `{name}` has {len(layers)} layers, but `dec-depth` {shown(depth)} needs as many"
            )
        return layers

    def version(self) -> tuple[int, ...] | None:
        """Return the version of the Marian that wrote the file, such as (1, 12, 42); `None` if the file has none."""
        value = self._options.get("version")
        if value is None:
            return None
        match = re.match(r"v?(\d{1,9})\.(\d{1,9})\.(\d{1,9})(?!\d)", value) if isinstance(value, str) else None
        if match is None:
            raise CheckpointError(f"{self._origin}: `version` must be one such as 'v1.12.42', got {shown(value)}")
        version = tuple(map(int, match.groups()))
        if version[:2] > NEWEST:
            newest = ".".join(map(str, NEWEST))
            raise UnsupportedModelError(
                f"{self._origin}: `version` {shown(value)} is newer than this program, which reads files of Marian up "
                f"to {newest}: update capsule-mt"
            )
        return version
