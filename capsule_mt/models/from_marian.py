"""A folder of Marian's, such as a student of Firefox Translations, as a checkpoint, without changing its files.

Tokens come from the SentencePiece vocabularies, or from Marian's own (*.yml) beside these. One more token follows,
which pads and starts: its embedding is zeros, as is what Marian's decoder reads first.
"""

import math
import os
import re
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from capsule_mt.engine.library import widened
from capsule_mt.engine.program import Codes, Tensor, UnsupportedModelError
from capsule_mt.messages import shown
from capsule_mt.models.marian_decoder import decoder_options_of, with_options_beside
from capsule_mt.models.marian_files import (
    OPTIONS,
    TABLES,
    MarianFile,
    open_marian,
    options_of,
    read_matrix,
    read_numbers,
)
from capsule_mt.models.marian_order import order_of_vocabularies
from capsule_mt.models.marian_variant import OPTIONS_READ, MarianVariant, variant_of
from capsule_mt.models.marian_yaml import read_yaml
from capsule_mt.models.opening import read_text
from capsule_mt.models.piece_tokenizer import PAD, PIECES_FILES, NumberedPieces, Pieces, PieceTokenizer, tokenizer_json
from capsule_mt.models.shipped import calibration_file
from capsule_mt.models.shortlist import Shortlist, refuse_text
from capsule_mt.models.weights import CheckpointError, read_json

# the padding token's bias: it is never generated, and label smoothing stays finite
PADDING_BIAS = -100.0
SHARED = "Wemb"  # the table of both languages
UNTIED = "decoder_ff_logit_out_Wt"  # a separate output matrix; Marian before 1.9 stores its transpose, without the "t"
LAYER_NORM_EPSILON = 1e-6
BEST = ".best-"  # in the names of models and configurations that training saves by a metric
UNPACKERS = {".gz": "gunzip *.gz", ".zst": "zstd -d *.zst", ".xz": "unxz *.xz", ".bz2": "bunzip2 *.bz2"}
NUMBERED = ".yml", ".yaml", ".json", ".txt", ".vocab"  # vocabularies that do not cut text
POSITIONS = 1024  # Marian itself has no limit
AnyPieces = Pieces | NumberedPieces
MAX_LENGTH = 512  # tokens, for `generate()`, which needs a limit
# the values that these options may have
REQUIRED: dict[str, tuple[Any, ...]] = {
    "type": ("transformer",),
    "input-types": ([], ["sequence", "sequence"]),
    "transformer-attention-mask": ("default",),
}
# Options that may be on: those of other model types, those of training, and those that `_settings` reads. All other
# options must be off.
OTHER_TYPES = ("bert-", "dec-cell-", "enc-cell", "enc-type", "ulr-", "dim-rnn", "factors-combine")
ALLOWED = OPTIONS_READ | {
    *("output-omit-bias", "skip", "transformer-depth-scaling", "transformer-guided-alignment-layer", "version"),
    *("dec-depth", "dim-emb", "dim-vocabs", "enc-depth", "tied-embeddings", "tied-embeddings-all"),
    *("separator-symbol", "tied-embeddings-src", "transformer-heads"),
    *("transformer-decoder-dim-ffn", "transformer-dim-ffn"),
    # Marian's code for `type` "transformer" does not read these; a learned table of positions would be a weight
    *("transformer-no-affine", "transformer-no-bias", "transformer-train-position-embeddings"),
}


class MarianFolder(NamedTuple):
    """The files of a model: as the configuration names them, or else by their usual names.

    pieces: the SentencePiece models of both languages, if the vocabularies only give each piece its id.
    has_order: whether it is known that the first vocabulary is the source's.
    settings_file: the path of the configuration; empty if there is none.
    """

    folder: str
    model: str
    vocabularies: tuple[str, str]
    shortlist: str | None = None
    settings: Mapping[str, Any] = {}
    pieces: tuple[str, str] | None = None
    has_order: bool = True
    settings_file: str = ""

    @classmethod
    def find(cls, folder: str | os.PathLike[str]) -> "MarianFolder | None":
        """Return the files in a folder; `None` if it has no model of Marian's."""
        folder = os.fspath(folder)
        names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
        models = [name for name in names if is_model_file(name)]
        _refuse_packed(folder, names, has_model=bool(models))
        if not models:
            return None
        settings, settings_file = _settings_of(folder, names)
        numbered = [name for name in names if re.search(r"(^|\.)vocab\.ya?ml$", name)]
        vocabularies = numbered or [name for name in names if name.endswith(".spm")]
        vocabularies = _named(folder, settings, "vocabs", vocabularies)
        shortlists = [name for name in names if name.startswith("lex") and name.endswith(".bin")]
        shortlists = _named(folder, settings, "shortlist", shortlists)
        model = _chosen(folder, _named(folder, settings, "models", models), "models")
        has_order = True
        if len(vocabularies) == 2 and settings.get("vocabs") is None:
            order = order_of_vocabularies(folder, names, vocabularies)
            vocabularies, has_order = order or vocabularies, order is not None
        if len(vocabularies) > 2:  # the model's type is the reason, unless files of another model are in the folder
            path = os.path.join(folder, model)
            refuse_unsupported(options_of(open_marian(path)), f"{path}: {OPTIONS}")
        if len(vocabularies) not in (1, 2) or len(shortlists) > 1:
            file_names = ", ".join((*vocabularies, *shortlists)) or "none"
            raise CheckpointError(
                f"{folder}: needs one or two vocabularies (*.spm) and at most one shortlist, but has {file_names}"
            )
        source, target = (os.path.join(folder, name) for name in (vocabularies[0], vocabularies[-1]))
        shortlist = os.path.join(folder, shortlists[0]) if shortlists else None
        pieces = None if source.endswith(".spm") else _pieces_beside(folder, vocabularies)
        path = os.path.join(folder, model)
        return cls(folder, path, (source, target), shortlist, settings, pieces, has_order, settings_file)


def _pieces_beside(folder: str, vocabularies: Sequence[str]) -> tuple[str, str]:
    """Return the SentencePiece models that cut text for vocabularies without such models, as OPUS-MT packs them."""
    if not all(name.endswith(NUMBERED) for name in vocabularies):
        raise UnsupportedModelError(
            f"{folder}: the vocabularies {', '.join(vocabularies)} are not read, only SentencePiece models (*.spm), "
            f"or {', '.join(f'*{suffix}' for suffix in NUMBERED)} with {' and '.join(PIECES_FILES)}"
        )
    source, target = (os.path.join(folder, name) for name in PIECES_FILES)
    for file in (source, target):
        if not os.path.lexists(file):
            raise CheckpointError(f"{file}: no such file, but {vocabularies[0]} needs it to split text into pieces")
    return source, target


def _refuse_packed(folder: str, names: Sequence[str], *, has_model: bool) -> None:
    """Refuse a folder whose model or one of its other files is compressed, as HPLT's and Mozilla's are."""
    for name in names:
        unpacked, suffix = os.path.splitext(name)
        is_shortlist = unpacked.startswith("lex") and unpacked.endswith(".bin")  # one in text is not read anyway
        belongs = has_model and (unpacked.endswith(".spm") or is_shortlist or "vocab" in unpacked)
        if suffix in UNPACKERS and unpacked not in names and (belongs or is_model_file(unpacked)):
            command = UNPACKERS[suffix]
            raise CheckpointError(f"{folder}: {name} is compressed: unpack this file and the others by `{command}`")


def _chosen(folder: str, names: Sequence[str], kind: str) -> str:
    """Return the only name; of the models of one training, that of the best one by its validation metric."""
    best = [name for name in names if BEST in name]
    is_one_training = len(best) == 1 and all(name.startswith(best[0].partition(BEST)[0]) for name in names)
    candidates = best if is_one_training else names
    if len(candidates) != 1:
        raise UnsupportedModelError(
            f"{folder}: has the {kind} {', '.join(names)}; needs exactly one: remove the others, or name the model in "
            "`models` of a decoder.yml"
        )
    return candidates[0]


def is_model_file(name: str) -> bool:
    # checkpoints that training resumes from, and those of single updates
    if name.endswith((".optimizer.npz", ".orig.npz")) or re.search(r"\.iter[0-9]+\.npz$", name):
        return False
    return name.endswith(".npz") or (name.startswith("model") and name.endswith(".bin"))


def has_model_file(folder: str | os.PathLike[str]) -> bool:
    """Return whether a folder has a model of Marian; it may lack the other files."""
    return os.path.isdir(folder) and any(map(is_model_file, os.listdir(folder)))


def _settings_of(folder: str, names: Sequence[str]) -> tuple[Mapping[str, Any], str]:
    """Return the configuration beside a model, and its file; both are empty if there is none."""
    configurations = [
        name for name in names if name.startswith(("config", "decoder")) and name.endswith((".yml", ".yaml"))
    ]
    if not configurations:  # as Marian's training names it
        configurations = [name for name in names if name.endswith(".npz.decoder.yml")]
    if not configurations:
        return {}, ""
    file = os.path.join(folder, _chosen(folder, configurations, "configurations"))
    return read_yaml(read_text(file), file), file


def _named(folder: str, settings: Mapping[str, Any], key: str, usual: list[str]) -> list[str]:
    """Return the files that a configuration names, which must be beside it; else the usual ones.

    Marian writes paths of the machine that trained the model, so only their last parts count.
    """
    values = settings.get(key)
    if values is None:
        return usual
    values = values if isinstance(values, list) else [values]
    named = list(dict.fromkeys(value for value in values if isinstance(value, str)))
    if not settings.get("relative-paths", False):
        file_names = [os.path.basename(name) for name in named]
        if len(set(file_names)) < len(named):
            raise CheckpointError(f"{folder}: `{key}` of its configuration has two files of the same name: {named}")
        named = file_names
    for name in named:
        if os.path.basename(name) != name or not os.path.lexists(os.path.join(folder, name)):
            raise CheckpointError(
                f"{folder}: `{key}` of its configuration has {shown(name)}, which is not a file beside it"
            )
    return named


class MarianCheckpoint:
    """The checkpoint in a folder of Marian's, with the interface of `capsule_mt.models.loading.HubCheckpoint`."""

    def __init__(self, files: MarianFolder) -> None:
        self.origin = f"{files.model}: {OPTIONS}"
        self.stored = open_marian(files.model)
        options = with_options_beside(options_of(self.stored), files.settings)
        refuse_unsupported(options, self.origin)
        self.decoder_options = decoder_options_of(files.settings, files.settings_file)
        self.files, self.pieces = _with_pieces(files, options.get("dim-vocabs"))
        sizes = options.get("dim-vocabs")
        num_tokens = [len(vocabulary.texts) for vocabulary in self.pieces]
        if sizes != num_tokens:
            raise _wrong_sizes(self.files, sizes, num_tokens, self.origin)
        self.size = max(num_tokens) + 1
        end = self.pieces[1].end
        self.config: dict[str, Any] = {
            **_settings(options, self.origin, self.size),
            "is_encoder_decoder": True,
            "pad_token_id": self.size - 1,
            "decoder_start_token_id": self.size - 1,
            "eos_token_id": end,
            "forced_eos_token_id": end,
        }
        self.calibrated_by = calibration_file(files.model)
        if os.path.lexists(self.calibrated_by):
            self.config["coverage_calibration"] = read_json(self.calibrated_by)
        self.generation = self._generation()
        has_two = self.pieces[0] is not self.pieces[1]
        self.tokenizer_config = {
            "tokenizer_class": "SeparateVocabulariesTokenizer" if has_two else "PreTrainedTokenizerFast",
            "split_special_tokens": True,
            "clean_up_tokenization_spaces": False,
            "model_max_length": POSITIONS,
            "model_input_names": ["input_ids", "attention_mask"],
            "eos_token": "</s>",
            "unk_token": self.pieces[1].texts[self.pieces[1].unknown],
            "pad_token": PAD,
        }
        without_bias = num_tokens[1] if options.get("output-omit-bias") else None
        self.weights = MarianWeights(self.stored, self.config, targets_without_bias=without_bias)

    def tokenizer_jsons(self) -> list[dict[str, Any]]:
        """Return tokenizer.json, and target_tokenizer.json if each language has its own."""
        pieces = [vocabulary for vocabulary in self.pieces if isinstance(vocabulary, Pieces)]
        if not pieces:
            raise UnsupportedModelError(
                f"{self.files.vocabularies[0]}: has its own order of ids, which a tokenizer.json cannot express"
            )
        return [tokenizer_json(vocabulary, self.size) for vocabulary in pieces[: len(set(self.files.vocabularies))]]

    def read_tokenizer(self) -> PieceTokenizer:
        return PieceTokenizer(*self.pieces, self.size)

    @property
    def length_factor(self) -> float | None:
        return self.decoder_options.length_factor

    @property
    def has_shortlist(self) -> bool:
        return self.files.shortlist is not None

    def read_shortlist(self) -> Shortlist:
        if self.files.shortlist is None:
            for name in filter(lambda name: name.startswith("lex"), sorted(os.listdir(self.files.folder))):
                refuse_text(os.path.join(self.files.folder, name))
            raise FileNotFoundError(f"there is no shortlist (lex.*.bin) in {self.files.folder}")
        return Shortlist.of_marian(self.files.shortlist, (self.size, self.size))

    def _generation(self) -> dict[str, Any]:
        token_fields = ("pad_token_id", "decoder_start_token_id", "eos_token_id", "forced_eos_token_id")
        return {
            "num_beams": self.decoder_options.num_beams,
            "length_penalty": self.decoder_options.length_penalty,
            "max_length": MAX_LENGTH,
            "suppress_tokens": [self.pieces[1].unknown, self.size - 1],
            **{name: self.config[name] for name in token_fields},
        }


def _with_pieces(files: MarianFolder, sizes: object) -> tuple[MarianFolder, tuple[AnyPieces, AnyPieces]]:
    """Return the files with the source's vocabulary first, and the vocabularies; `sizes` is `dim-vocabs`."""
    pieces = _read_pieces(files)
    if files.has_order:
        return files, pieces
    num_tokens = [len(vocabulary.texts) for vocabulary in pieces]
    if num_tokens[0] == num_tokens[1]:
        names = " and ".join(map(os.path.basename, files.vocabularies))
        raise UnsupportedModelError(
            f"{files.folder}: cannot tell which of {names}, of {num_tokens[0]} tokens each, is the source's "
            "vocabulary: list the source's and then the target's in `vocabs` of a decoder.yml, name them "
            "srcvocab.spm and trgvocab.spm, or name the folder after their languages, such as fr-en"
        )
    if sizes != num_tokens:
        files = files._replace(vocabularies=(files.vocabularies[1], files.vocabularies[0]))
        pieces = _read_pieces(files)
    return files, pieces


def _wrong_sizes(files: MarianFolder, sizes: Any, num_tokens: list[int], origin: str) -> CheckpointError:
    """Return the error for vocabularies of other sizes than `dim-vocabs`."""
    names = [os.path.basename(file) for file in files.vocabularies]
    described = [f"{name} has {number} tokens" for name, number in zip(names, num_tokens, strict=True)]
    problem = f"{origin}: `dim-vocabs` is {shown(sizes)}, but {' and '.join(dict.fromkeys(described))}"
    if sizes == num_tokens[::-1]:
        return CheckpointError(f"{problem}: the source's vocabulary must be the first one")
    has_two_sizes = isinstance(sizes, list) and len(sizes) == 2 and all(type(size) is int for size in sizes)
    if not has_two_sizes:
        return CheckpointError(f"{problem}: it must have the sizes of the source's and the target's vocabulary")
    if files.pieces is not None and all(0 < size <= number for size, number in zip(sizes, num_tokens, strict=True)):
        return CheckpointError(f"{problem}: the model knows only the first tokens, so remove the others from the file")
    return CheckpointError(f"{problem}: it is the vocabulary of another model, or it is damaged")


def _read_pieces(files: MarianFolder) -> tuple[AnyPieces, AnyPieces]:
    source_file, target_file = files.vocabularies
    source: AnyPieces
    target: AnyPieces
    if files.pieces is not None:
        source, target = map(NumberedPieces, files.pieces, files.vocabularies)
    else:
        if not target_file.endswith(".spm"):
            raise UnsupportedModelError(f"{target_file}: is not a SentencePiece model (*.spm), but {source_file} is")
        source = Pieces(source_file)
        target = source if source_file == target_file else Pieces(target_file)
    if (source.end, source.unknown) != (target.end, target.unknown):
        raise UnsupportedModelError(f"{target_file}: has other ids for `</s>` and `<unk>` than {source_file}")
    return source, target


def refuse_unsupported(options: Mapping[str, Any], origin: str) -> None:
    """Refuse the options of a model that are not supported."""
    for name, value in options.items():
        if name in REQUIRED and value not in REQUIRED[name]:
            accepted = " or ".join(map(repr, REQUIRED[name]))
            raise UnsupportedModelError(f"{origin}: `{name}` {shown(value)} is not supported, only {accepted}")
        if value and name not in REQUIRED and name not in ALLOWED and not name.startswith(OTHER_TYPES):
            raise UnsupportedModelError(f"{origin}: `{name}` {shown(value)} is not supported")


def _settings(options: Mapping[str, Any], origin: str, vocabulary: int) -> dict[str, Any]:
    """Return the configuration of a model with these options."""
    variant = variant_of(options, origin)
    ties_all, ties_output, ties_source = (
        bool(options.get(f"tied-embeddings{suffix}")) for suffix in ("-all", "", "-src")
    )
    heads, width = options.get("transformer-heads"), options.get("transformer-dim-ffn")
    return {
        "architectures": ["CapsuleMarianMTModel"],
        "model_type": "capsule_marian",
        "decoder_self": variant.decoder_self,
        "marian_variant": variant,
        "marian_positions": True,
        "vocab_size": vocabulary,
        "layer_norm_eps": LAYER_NORM_EPSILON,
        "d_model": options.get("dim-emb"),
        "encoder_layers": options.get("enc-depth"),
        "decoder_layers": options.get("dec-depth"),
        "encoder_attention_heads": heads,
        "decoder_attention_heads": heads,
        "encoder_ffn_dim": width,
        "decoder_ffn_dim": options.get("transformer-decoder-dim-ffn") or width,
        "activation_function": options.get("transformer-ffn-activation", "swish"),
        "scale_embedding": True,
        "share_encoder_decoder_embeddings": ties_all or (ties_output and ties_source),
        "decoder_vocab_size": vocabulary,
        "tie_word_embeddings": ties_all or ties_output,
        "max_position_embeddings": POSITIONS,
    }


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

    def _is_omitted(self, weight: "StoredWeight") -> bool:
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


class StoredWeight(NamedTuple):
    """A weight in a file of Marian's.

    kind: "matrix", "table" of tokens, "row", or "bias" of tokens.
    """

    name: str
    kind: str


def stored_weights_of(config: Mapping[str, Any], max_layers: int, file: str) -> dict[str, StoredWeight]:
    """Return for each weight of a Capsule Marian the weight of Marian's file that it is stored as."""
    weights = {"final_logits_bias": StoredWeight("decoder_ff_logit_out_b", "bias")}
    if config["share_encoder_decoder_embeddings"]:
        weights["model.shared.weight"] = StoredWeight(SHARED, "table")
    else:
        for side in ("encoder", "decoder"):
            weights[f"model.{side}.embed_tokens.weight"] = StoredWeight(f"{side}_{SHARED}", "table")
    if not config["tie_word_embeddings"]:
        weights["lm_head.weight"] = StoredWeight("decoder_ff_logit_out_W", "table")

    def add_map(name: str, weight: str, bias: str | None) -> None:
        weights[f"{name}.weight"] = StoredWeight(weight, "matrix")
        if bias is not None:
            weights[f"{name}.bias"] = StoredWeight(bias, "row")

    def add_norm(name: str, stored: str, steps: str, suffix: str = "") -> None:
        if "n" in steps:
            weights[f"{name}.weight"], weights[f"{name}.bias"] = (
                StoredWeight(f"{stored}_ln_{parameter}{suffix}", "row") for parameter in ("scale", "bias")
            )
        if "r" in steps:
            weights[f"{name}_rms.weight"] = StoredWeight(f"{stored}_rms_scale{suffix}", "row")

    def add_norms(name: str, stored: str, stored_before: str | None = None) -> None:
        """Add the norms and the gate around a layer; `stored_before` names the input's norm if it is not `stored`."""
        add_norm(f"{name}_pre_norm", stored_before or stored, variant.preprocess, "_pre")
        add_norm(f"{name}_layer_norm", stored, variant.postprocess)
        if "h" in variant.postprocess:
            add_map(f"{name}_gate", f"{stored}_Wh", f"{stored}_bh")

    def add_attention(name: str, stored: str) -> None:
        for letter, projection in zip("qkvo", ("q_proj", "k_proj", "v_proj", "out_proj"), strict=True):
            if letter != "o" or variant.attention_projection:
                add_map(f"{name}.{projection}", f"{stored}_W{letter}", f"{stored}_b{letter}")
        add_norms(name, f"{stored}_Wo")

    variant = config.get("marian_variant") or MarianVariant(decoder_self=config["decoder_self"])
    for side, stack in (("encoder", "encoder_layers"), ("decoder", "decoder_layers")):
        depth = config[stack]
        if type(depth) is not int or not 1 <= depth <= max_layers:
            raise CheckpointError(f"{file}: `{side[:3]}-depth` is {shown(depth)}, but it has weights for fewer layers")
        add_norm(f"model.{side}.emb_pre_norm", f"{side}_emb", variant.postprocess_emb, "_pre")
        add_norm(f"model.{side}.top_layer_norm", f"{side}_top", variant.postprocess_top)
        if "h" in variant.postprocess_top:
            add_map(f"model.{side}.top_gate", f"{side}_top_Wh", f"{side}_top_bh")
        for index in range(depth):
            number = variant.tied_layers[index] if side == "decoder" and variant.tied_layers else index + 1
            layer, stored = f"model.{side}.layers.{index}", f"{side}_l{number}"
            if side == "encoder" or variant.decoder_self == "attention":
                add_attention(f"{layer}.self_attn", f"{stored}_self")
            else:
                _add_past(f"{layer}.self_attn", stored, variant, config["d_model"], add_map, weights)
                kind = "aan" if variant.decoder_self == "average" else "rnn"
                pre_norm = f"{stored}_rnn" if kind == "rnn" else None
                add_norms(f"{layer}.self_attn", f"{stored}_{kind}_ffn", pre_norm)
            if side == "decoder":
                add_attention(f"{layer}.encoder_attn", f"{stored}_context")
            for number in range(1, getattr(variant, f"{side}_ffn_depth") + 1):
                add_map(f"{layer}.fc{number}", f"{stored}_ffn_W{number}", f"{stored}_ffn_b{number}")
            add_norms(f"{layer}.final", f"{stored}_ffn_ffn")
    return weights


def _add_past(
    name: str,
    stored: str,
    variant: MarianVariant,
    width: int,
    add_map: Callable[[str, str, str | None], None],
    weights: dict[str, StoredWeight],
) -> None:
    """Add the weights of what replaces a decoder layer's self-attention."""
    if variant.decoder_self == "average":
        depth = variant.average_ffn_depth
        # the last of `depth` maps is left out if its input has the width of the model already
        has_last = depth < 2 or variant.average_ffn_dim != width
        for number in range(1, depth + has_last):
            add_map(f"{name}.fc{number}", f"{stored}_aan_W{number}", f"{stored}_aan_b{number}")
        for gate in ("input", "forget") if variant.average_gates else ():
            add_map(f"{name}.{gate}_gate", f"{stored}_aan_W{gate[0]}", f"{stored}_aan_b{gate[0]}")
        return
    if variant.decoder_self == "ssru":
        add_map(f"{name}.forget_gate", f"{stored}_rnn_Wf", f"{stored}_rnn_bf")
        add_map(f"{name}.input_map", f"{stored}_rnn_W", None)
        if variant.ssru_layer_norm:
            weights[f"{name}.forget_norm.weight"] = StoredWeight(f"{stored}_rnn_gammaf", "row")
            weights[f"{name}.input_norm.weight"] = StoredWeight(f"{stored}_rnn_gamma", "row")
    else:
        add_map(f"{name}.input_gates", f"{stored}_rnn_W", f"{stored}_rnn_b")
        add_map(f"{name}.input_candidate", f"{stored}_rnn_Wx", f"{stored}_rnn_bx")
        add_map(f"{name}.state_gates", f"{stored}_rnn_U", None)
        add_map(f"{name}.state_candidate", f"{stored}_rnn_Ux", None)
    if variant.rnn_projection:
        add_map(f"{name}.out_proj", f"{stored}_rnn_Wo", f"{stored}_rnn_bo")
