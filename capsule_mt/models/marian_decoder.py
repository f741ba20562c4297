"""The options for Marian's decoder beside a model, as in decoder.yml.

Some are read, some have no effect here (docs/models.md lists some that change what Marian writes), others are refused
by name. A warning tells of what is not an option of Marian's decoder, such as an option of training.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from capsule_mt.engine.program import UnsupportedModelError
from capsule_mt.messages import shown, warn_once
from capsule_mt.models.weights import CheckpointError

MAX_NAMED, MAX_SHOWN = 8, 40  # options in a warning, and characters of each
LENGTH_FACTORS = 0.001, 1000
# options that other parts of the reader read: the files, and the version of Marian
FILES = ("models", "vocabs", "shortlist", "relative-paths", "version")
READ = frozenset((*FILES, "beam-size", "normalize", "word-penalty", "max-length-factor"))
HARMLESS = frozenset(
    {
        # what is logged, printed beside a translation, and where
        *("log", "log-level", "log-time-zone", "quiet", "quiet-translation", "stat-freq", "dump-config", "check-nan"),
        *("input", "output", "n-best", "alignment", "word-scores", "quality"),
        # how much is translated at once, and by what
        *("workspace", "mini-batch", "mini-batch-words", "maxi-batch", "maxi-batch-sort", "data-threads", "devices"),
        *("cpu-threads", "model-mmap", "port", "cache-size", "seed", "interpolate-env-vars"),
        # how exactly matrices are multiplied: `int8` of our own decides it
        *("fp16", "precision", "gemm-type", "gemm-precision", "quantize-range", "optimize", "int8shift"),
        # Marian drops longer sources, and Bergamot cuts them; here they are translated in parts
        *("max-length", "max-length-break"),
        # how Bergamot splits sentences
        *("ssplit-mode", "ssplit-prefix-file", "bergamot-mode"),
        "allow-special",  # whether byte pieces such as a line break may be written; here they may
    }
)
# other options must be off, for these reasons
REFUSED = {
    "allow-unk": "unknown words are copied, and never written as <unk>",
    "output-sampling": "translations are not sampled",
    "output-approx-knn": "every token, or a shortlist, is scored",
    "force-decode": "the beginning of a translation cannot be given",
    "no-spm-encode": "texts are cut into pieces here",
    "no-spm-decode": "pieces are joined here",
    "max-length-crop": "long sources are translated in parts; calls with `truncation=True` cut them",
    "tsv": "a text has one field",
    "ignore-model-config": "the options in the model's file describe its weights",
    "config": "only one configuration is read",
    "encryption-key-path": "encrypted models cannot be read",
}
# options of a model that its own file may lack; it then takes them from the configuration, as Marian does
MODEL_OPTIONS = frozenset(
    """
    type dim-vocabs dim-emb enc-depth dec-depth dec-cell skip layer-normalization right-left input-types
    input-reorder input-join-fields best-deep factors-dim-emb lemma-dependency lemma-dim-emb tied-embeddings
    tied-embeddings-src tied-embeddings-all output-omit-bias transformer-heads transformer-no-projection
    transformer-rnn-projection transformer-pool transformer-dim-ffn transformer-decoder-dim-ffn
    transformer-ffn-depth transformer-dim-aan transformer-decoder-ffn-depth transformer-ffn-activation
    transformer-aan-depth transformer-preprocess transformer-aan-activation transformer-aan-nogate
    transformer-tied-layers transformer-decoder-autoreg transformer-postprocess-emb transformer-postprocess
    transformer-postprocess-top transformer-train-position-embeddings transformer-attention-mask
    transformer-alibi-shift alibi transformer-disable-position-embeddings transformer-alibi-trainable
    separator-symbol version transformer-no-bias transformer-no-affine transformer-depth-scaling ulr
    transformer-guided-alignment-layer
    """.split()  # noqa: SIM905
)
# options of types of models that are not read
OTHER_MODELS = ("bert-", "comet-", "ulr-", "dim-rnn", "enc-cell", "enc-type", "dec-cell-", "factors-combine")


class DecoderOptions(NamedTuple):
    """How Marian's decoder searches.

    length_factor: a translation has at most this many times the tokens of its source, rounded up; `None` for no such
        limit.
    """

    num_beams: int = 1
    length_penalty: float = 1.0
    length_factor: float | None = None


def decoder_options_of(settings: Mapping[str, Any], origin: str) -> DecoderOptions:
    """Return the options of a configuration; refuse those that are not supported, and warn of unknown ones.

    Args:
        origin: the file of the configuration, for errors.
    """
    for name, value in settings.items():
        if value and name in REFUSED:
            raise UnsupportedModelError(
                f"{origin}: `{name}` {shown(value)} is not supported: {REFUSED[name]}; remove it"
            )
    if settings.get("word-penalty"):
        raise UnsupportedModelError(
            f"{origin}: `word-penalty` {shown(settings['word-penalty'])} is not supported, only 0"
        )
    weights = settings.get("weights")
    if weights and any(weight != 1 for weight in (weights if isinstance(weights, list) else [weights])):
        raise UnsupportedModelError(f"{origin}: `weights` {shown(weights)} is not supported, only 1")
    if (settings.get("tsv-fields") or 1) != 1:
        raise UnsupportedModelError(f"{origin}: `tsv-fields` {shown(settings['tsv-fields'])} is not supported, only 1")
    options = _searched(settings, origin)
    if settings.get("skip-cost") and options.num_beams > 1:
        raise UnsupportedModelError(
            f"{origin}: `skip-cost` True is not supported with `beam-size` {options.num_beams}, only with 1"
        )
    _warn_of_unknown(settings, origin)
    return options


def _searched(settings: Mapping[str, Any], origin: str) -> DecoderOptions:
    beams = settings.get("beam-size", 1)
    # with several beams, Marian's default is 0; with one, the penalty has no effect
    penalty = settings.get("normalize", 0.0 if "beam-size" in settings else 1.0)
    if type(beams) is not int or not 1 <= beams <= 1000 or not isinstance(penalty, (int, float)):
        raise CheckpointError(
            f"{origin}: `beam-size` {shown(beams)} or `normalize` {shown(penalty)} in its configuration"
        )
    factor = settings.get("max-length-factor")
    is_number = isinstance(factor, (int, float)) and not isinstance(factor, bool)
    if factor is not None and not (is_number and LENGTH_FACTORS[0] <= factor <= LENGTH_FACTORS[1]):
        accepted = "a number from {} to {}".format(*LENGTH_FACTORS)
        raise CheckpointError(f"{origin}: `max-length-factor` must be {accepted}, got {shown(factor)}")
    return DecoderOptions(beams, float(penalty), None if factor is None else float(factor))


def _warn_of_unknown(settings: Mapping[str, Any], origin: str) -> None:
    known = READ | HARMLESS | MODEL_OPTIONS | {*REFUSED, "weights", "tsv-fields", "skip-cost"}
    unknown = [name for name in settings if name not in known and not name.startswith(OTHER_MODELS)]
    if unknown:
        named = ", ".join(f"`{name[:MAX_SHOWN]}`" for name in unknown[:MAX_NAMED])
        hidden = f" and {len(unknown) - MAX_NAMED} more" if len(unknown) > MAX_NAMED else ""
        verb = "is not an option" if len(unknown) == 1 else "are not options"
        warn_once(f"{origin}: {named}{hidden} {verb} of Marian's decoder: no effect.")


def with_options_beside(options: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return a model's own options, and for those that its file lacks the configuration's."""
    return {name: settings[name] for name in MODEL_OPTIONS & {*settings}} | dict(options)
