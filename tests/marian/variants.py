"""The options of Marian that its models are trained with here, each alone, and combinations of them.

A value is a text with the words of the option; "" is a flag. `REFUSED` has the option that the reader names.
"""

TRANSFORMER = {
    "type": "transformer",
    "dim-emb": "32",
    "transformer-heads": "4",
    "transformer-dim-ffn": "48",
    "enc-depth": "2",
    "dec-depth": "2",
}
TIED = {"tied-embeddings-all": ""}
SSRU = {"transformer-decoder-autoreg": "rnn", "dec-cell": "ssru"}
GRU = {"transformer-decoder-autoreg": "rnn", "dec-cell": "gru"}
AVERAGE = {"transformer-decoder-autoreg": "average-attention", "transformer-dim-aan": "40"}
RECURRENT = {"dim-emb": "32", "dim-rnn": "40", **TIED}
PRE, POST, EMB, TOP = (
    f"transformer-{step}" for step in ("preprocess", "postprocess", "postprocess-emb", "postprocess-top")
)
PRE_NORM = {PRE: "n", POST: "da"}
ACTIVATION = "transformer-ffn-activation"
BEGINNINGS = {"tied": {**TRANSFORMER, **TIED}, "separate": TRANSFORMER, "recurrent": RECURRENT}

ALONE: dict[str, dict[str, str]] = {
    "default": {},
    **{activation: {ACTIVATION: activation} for activation in ("relu", "gelu", "sigmoid")},
    "pre-n": PRE_NORM,
    "pre-n-top-n": {**PRE_NORM, TOP: "n"},
    "pre-n-top-an": {**PRE_NORM, TOP: "an"},
    "pre-n-post-dan": {PRE: "n"},
    "pre-n-post-d": {PRE: "n", POST: "d"},
    "post-na": {POST: "na"},
    "post-da": {POST: "da"},
    "highway": {POST: "dhn"},
    "top-n": {TOP: "n"},
    "top-dn": {TOP: "dn"},
    "top-a": {TOP: "a"},
    "emb-nd": {EMB: "nd"},
    "rms-post": {POST: "dar"},
    "rms-pre": {PRE: "r", POST: "da", TOP: "r"},
    "yml": {"vocabs": "joint.yml joint.yml"},
    "txt": {"vocabs": "joint.txt joint.txt"},
    "dim-vocabs": {"dim-vocabs": "300 300"},
    "two-spm-tied": {"vocabs": "de.spm en.spm"},
    "mozilla": {"vocabs": "mozilla.spm mozilla.spm"},
    "ssru": SSRU,
    "ssru-ln": {**SSRU, "layer-normalization": ""},
    "ssru-projection": {**SSRU, "transformer-rnn-projection": ""},
    "ssru-ln-projection": {**SSRU, "layer-normalization": "", "transformer-rnn-projection": ""},
    "ssru-pre-n": {**SSRU, **PRE_NORM},
    "ssru-pre-n-top": {**SSRU, **PRE_NORM, TOP: "n"},
    "ssru-dropout": {**SSRU, "dropout-rnn": "0.1"},
    "ssru-tied-layers": {**SSRU, "transformer-tied-layers": "1 1"},
    "gru": GRU,
    "average": AVERAGE,
    "average-nogate": {**AVERAGE, "transformer-aan-nogate": ""},
    "tied-layers": {"transformer-tied-layers": "1 1"},
    "tied-layers-9": {"transformer-tied-layers": "1 9"},  # the weights of the second layer are named decoder_l9
    "train-positions": {"transformer-train-position-embeddings": "", "max-length": "60"},
    "decoder-dim-ffn": {"transformer-decoder-dim-ffn": "24"},
    "ffn-depth-1": {"transformer-ffn-depth": "1"},
    "ffn-depth-3": {"transformer-ffn-depth": "3"},
    "decoder-ffn-depth-3": {"transformer-decoder-ffn-depth": "3"},
    "width-36": {"dim-emb": "36", "transformer-heads": "3"},
    "width-34": {"dim-emb": "34", "transformer-heads": "2"},
    "width-33": {"dim-emb": "33", "transformer-heads": "3"},
    "heads-1": {"transformer-heads": "1"},
    "heads-32": {"transformer-heads": "32"},
    "deep": {"enc-depth": "5", "dec-depth": "1"},
    "depth-scaling": {"transformer-depth-scaling": ""},
    **{name: {f"transformer-{name}": ""} for name in ("no-projection", "no-affine", "no-bias")},
    "no-positions": {"transformer-disable-position-embeddings": ""},
    "omit-bias": {"output-omit-bias": ""},
    "layer-normalization": {"layer-normalization": ""},
    "skip": {"skip": ""},
    "separator": {"separator-symbol": "foo"},
    "smoothing": {"exponential-smoothing": "0.001"},
    "untied": {"begins": "separate"},
    "tied-out": {"begins": "separate", "tied-embeddings": ""},
    "tied-src": {"begins": "separate", "tied-embeddings-src": ""},
    "tied-src-out": {"begins": "separate", "tied-embeddings": "", "tied-embeddings-src": ""},
    "two-spm": {"begins": "separate", "vocabs": "de.spm en.spm"},
    "two-spm-tied-out": {"begins": "separate", "tied-embeddings": "", "vocabs": "de.spm en.spm"},
    # those that are refused
    "lstm": {**SSRU, "dec-cell": "lstm"},
    "sru": {**SSRU, "dec-cell": "sru"},
    "pool": {"transformer-pool": ""},
    "right-left": {"right-left": ""},
    "transformer-new": {"type": "transformer-new"},
    "s2s": {"begins": "recurrent", "type": "s2s"},
    "amun": {"begins": "recurrent", "type": "amun"},
}
# chosen without having looked at them, when every option above was read, and read once
TOGETHER: dict[str, dict[str, str]] = {
    "average-pre-n": {**AVERAGE, **PRE_NORM, TOP: "n"},
    "average-depth-1": {**AVERAGE, "transformer-aan-depth": "1"},
    "average-depth-3-relu": {**AVERAGE, "transformer-aan-depth": "3", "transformer-aan-activation": "relu"},
    "average-same-width": {**AVERAGE, "transformer-dim-aan": "32"},
    "average-tied-layers": {**AVERAGE, "transformer-tied-layers": "1 1"},
    "gru-projection": {**GRU, "transformer-rnn-projection": ""},
    "gru-pre-n": {**GRU, **PRE_NORM, TOP: "n"},
    "gru-highway": {**GRU, POST: "dhn"},
    "gru-tied-layers": {**GRU, "transformer-tied-layers": "1 1"},
    "ssru-ln-pre-n": {**SSRU, **PRE_NORM, "layer-normalization": ""},
    "ssru-projection-gelu": {**SSRU, "transformer-rnn-projection": "", ACTIVATION: "gelu"},
    "ssru-rms": {**SSRU, PRE: "r", POST: "da", TOP: "r"},
    "ssru-highway-pre": {**SSRU, PRE: "n", POST: "dh"},
    "ssru-two-spm": {**SSRU, "begins": "separate", "vocabs": "de.spm en.spm", TOP: "n"},
    "pre-n-gelu-emb": {**PRE_NORM, ACTIVATION: "gelu", EMB: "n"},
    "pre-n-no-projection": {**PRE_NORM, "transformer-no-projection": ""},
    "pre-n-tied-layers": {**PRE_NORM, "dec-depth": "3", "transformer-tied-layers": "1 2 1"},
    "pre-r-post-dan": {PRE: "r"},
    "pre-nr": {PRE: "nr", POST: "da"},
    "post-har": {POST: "har"},
    "top-h": {TOP: "h"},
    "top-anr": {TOP: "anr"},
    "emb-r": {EMB: "r"},
    "width-35": {"dim-emb": "35", "transformer-heads": "5", ACTIVATION: "sigmoid"},
    "no-positions-ssru": {**SSRU, "transformer-disable-position-embeddings": ""},
    "ffn-depths": {
        "transformer-ffn-depth": "4",
        "transformer-decoder-ffn-depth": "1",
        "transformer-decoder-dim-ffn": "20",
    },
    "omit-bias-untied-txt": {"begins": "separate", "output-omit-bias": "", "vocabs": "joint.txt joint.txt"},
}
# the students of Mozilla's registry by its names of architectures, at a quarter of their width
STUDENT = {
    **SSRU,
    ACTIVATION: "relu",
    "enc-depth": "6",
    "dim-emb": "64",
    "transformer-dim-ffn": "384",
    "transformer-heads": "8",
    "transformer-guided-alignment-layer": "last",
}
BASE = {"dim-emb": "128", "transformer-dim-ffn": "512"}
TWO_VOCABULARIES = {"begins": "separate", "tied-embeddings": "", "vocabs": "de.spm en.spm"}
STUDENTS: dict[str, dict[str, str]] = {
    "student-tiny": STUDENT,
    "student-base-memory": {**STUDENT, "dec-depth": "4", "dim-emb": "96"},
    "student-base": {**STUDENT, **BASE},
    "student-two": {**STUDENT, **TWO_VOCABULARIES},
    "student-two-base": {**STUDENT, **TWO_VOCABULARIES, **BASE},
}
VARIANTS = ALONE | TOGETHER | STUDENTS
REFUSED = {
    "lstm": "dec-cell",
    "sru": "dec-cell",
    "pool": "transformer-pool",
    "right-left": "right-left",
    "transformer-new": "type",
    "s2s": "type",
    "amun": "type",
}


def options_of(name: str) -> tuple[dict[str, str], list[str]]:
    """Return the options of a variant, and its vocabularies."""
    options = dict(VARIANTS[name])
    beginning = BEGINNINGS[options.pop("begins", "recurrent" if name in ("s2s", "amun") else "tied")]
    vocabularies = options.pop("vocabs", "joint.spm joint.spm").split()
    if name == "amun":  # its decoder ties tables by another option
        beginning = {option: value for option, value in beginning.items() if option not in TIED}
    return beginning | options, vocabularies
