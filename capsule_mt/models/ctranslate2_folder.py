"""The files of a model of CTranslate2: weights, vocabularies, config.json, and the SentencePiece models beside them.

A package of Argos Translate is a folder with metadata.json and sentencepiece.model; the model is in its folder
`model`, or, where an archive was unpacked, beside them.
"""

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from capsule_mt.engine.program import UnsupportedModelError
from capsule_mt.messages import shown
from capsule_mt.models.ctranslate2_files import CONFIG_VERSION, CTranslate2File
from capsule_mt.models.fairseq_tokenizer import num_languages_in
from capsule_mt.models.opening import open_file, read_text
from capsule_mt.models.weights import CheckpointError, read_json, read_json_list

MODEL_FILE, CONFIG_FILE = "model.bin", "config.json"
METADATA_FILE, ARGOS_FOLDER = "metadata.json", "model"
ARGOS_PIECES, ARGOS_BPE = "sentencepiece.model", "bpe.model"
PAIR_OF_PIECES = "source.spm", "target.spm"
PIECES_ENDINGS = ".spm", ".model"
# fields of config.json with the values that change nothing; those of `Settings` are read
REQUIRED = "unk_token", "bos_token", "eos_token", "add_source_bos", "add_source_eos"
NEUTRAL: dict[str, tuple[Any, ...]] = {"multi_query_attention": (False, None), "quantization_type": (0, None)}


class CTranslate2Folder(NamedTuple):
    """The files of a model.

    metadata: of a package of Argos Translate; `None` for another folder.
    pieces: the SentencePiece models of both languages.
    """

    folder: str
    model: str
    pieces: tuple[str, str]
    metadata: Mapping[str, Any] | None = None

    @classmethod
    def find(cls, folder: str) -> "CTranslate2Folder":
        """Return the files in a folder."""
        model_folder = folder_of_model(folder)
        if model_folder is None:
            raise CheckpointError(f"{folder}: has no model of CTranslate2 ({MODEL_FILE})")
        model = os.path.join(model_folder, MODEL_FILE)
        metadata_file = os.path.join(folder, METADATA_FILE)
        if not os.path.lexists(metadata_file):
            return cls(folder, model, _pieces_beside(folder))
        pieces = _pieces_of_package(folder)
        return cls(folder, model, (pieces, pieces), _metadata(metadata_file))


def folder_of_model(folder: str | os.PathLike[str]) -> str | None:
    """Return the folder of a model of CTranslate2: this one, or that in a package of Argos Translate; else `None`."""
    if _has_model(folder):
        return os.fspath(folder)
    inner = os.path.join(folder, ARGOS_FOLDER)
    return inner if os.path.lexists(os.path.join(folder, METADATA_FILE)) and _has_model(inner) else None


def _has_model(folder: str | os.PathLike[str]) -> bool:
    """Return whether a folder has a file that begins with a version and the name of a specification."""
    path = os.path.join(folder, MODEL_FILE)
    if not os.path.isfile(path):
        return False
    with open_file(path) as file:
        return re.match(rb"[\x01-\xff]\0\0\0[\x01-\xff]\0\w+(Spec|Base|Big)\0", file.read(64)) is not None


def _metadata(file: str) -> dict[str, Any]:
    """Return what describes a package of Argos Translate."""
    metadata = read_json(file)
    kind, prefix = metadata.get("type", "translate"), metadata.get("target_prefix", "")
    if kind != "translate":
        raise UnsupportedModelError(f"{file}: `type` {shown(kind)} is not supported, only 'translate'")
    if not isinstance(prefix, str):
        raise CheckpointError(f"{file}: `target_prefix` must be a text, got {shown(prefix)}")
    return metadata


def _pieces_of_package(folder: str) -> str:
    file = os.path.join(folder, ARGOS_PIECES)
    if os.path.lexists(file):
        return file
    if os.path.lexists(os.path.join(folder, ARGOS_BPE)):
        raise UnsupportedModelError(
            f"{os.path.join(folder, ARGOS_BPE)}: is not read, as its words are those of Moses' tokenizer; look for a "
            f"newer package, with {ARGOS_PIECES}"
        )
    raise CheckpointError(f"{file}: no such file, but {METADATA_FILE} says that this is a package of Argos Translate")


def _pieces_beside(folder: str) -> tuple[str, str]:
    """Return the SentencePiece models of the source and the target: two, or one for both."""
    parent = os.path.dirname(os.path.abspath(folder))
    if os.path.basename(os.path.abspath(folder)) == ARGOS_FOLDER and os.path.lexists(f"{parent}/{METADATA_FILE}"):
        raise CheckpointError(f"{folder}: is a part of a package of Argos Translate: name {parent}")
    names = sorted(name for name in os.listdir(folder) if name.endswith(PIECES_ENDINGS))
    if set(PAIR_OF_PIECES) <= {*names}:
        names = [*PAIR_OF_PIECES]
    if len(names) != 1 and names != [*PAIR_OF_PIECES]:
        problem = f"has the SentencePiece models {', '.join(names)}" if names else "has no SentencePiece model"
        raise CheckpointError(
            f"{folder}: {problem}, but a model of CTranslate2 needs {' and '.join(PAIR_OF_PIECES)}, or one *.model or "
            "*.spm for both languages: copy it from the model that it was converted from"
        )
    return os.path.join(folder, names[0]), os.path.join(folder, names[-1])


class Settings(NamedTuple):
    """What config.json says, or in older models the variables of the file.

    decoder_start_token: what the decoder first reads, unless it starts with zeros.
    add_source_bos, add_source_eos: whether these tokens precede and follow a source.
    layer_norm_epsilon: added to the variance by every LayerNorm; `None` for the default.
    """

    unk_token: str = "<unk>"
    bos_token: str = "<s>"
    eos_token: str = "</s>"
    decoder_start_token: str | None = "<s>"
    add_source_bos: bool = False
    add_source_eos: bool = False
    layer_norm_epsilon: float | None = None


def settings_of(stored: CTranslate2File) -> Settings:
    """Return the settings of a model."""
    file = os.path.join(os.path.dirname(stored.file), CONFIG_FILE)
    if stored.version < CONFIG_VERSION:
        return _old_settings(stored)
    if not os.path.lexists(file):
        raise CheckpointError(f"{file}: no such file, but {stored.file} is of version {stored.version}, which has one")
    config = read_json(file)
    for name, value in config.items():
        if name in NEUTRAL and value not in NEUTRAL[name]:
            raise UnsupportedModelError(f"{file}: `{name}` {shown(value)} is not supported, only {NEUTRAL[name][0]}")
        if name not in NEUTRAL and name not in Settings._fields:
            raise UnsupportedModelError(f"{file}: `{name}` is not known")
    for name in REQUIRED:
        if name not in config:
            raise CheckpointError(f"{file}: lacks `{name}`, which CTranslate2's converters write: copy the file again")
    # without a start token, CTranslate2 starts with the first token of a call's prefix
    config.setdefault("decoder_start_token", None)
    # a transformers converter writes `null` for a token that the tokenizer lacks
    fields = {name: config[name] for name in Settings._fields if name in config}
    if fields.get("bos_token", "") is None:
        del fields["bos_token"]
    settings = Settings(**fields)
    for name, value in settings._asdict().items():
        expected: type | tuple[type, ...] = str if name.endswith("_token") else bool
        if name == "layer_norm_epsilon":
            is_valid = value is None or (type(value) in (int, float) and 0 < value < 1)
        else:
            is_valid = isinstance(value, expected) or (name == "decoder_start_token" and value is None)
        if not is_valid:
            raise CheckpointError(
                f"{file}: `{name}` must be a text, a flag or a number as it says, got {shown(value)}"
            )
    return settings


def _old_settings(stored: CTranslate2File) -> Settings:
    """Return what the variables of an older file say."""
    default = Settings()
    texts: dict[str, Any] = {
        name: stored.text(name) or getattr(default, name) for name in ("unk_token", "bos_token", "eos_token")
    }
    start: str | None = texts["bos_token" if stored.scalar("with_target_bos") != 0 else "eos_token"]
    return Settings(
        **texts,
        decoder_start_token=None if stored.scalar("user_decoder_start_tokens") else start,
        add_source_bos=bool(stored.scalar("with_source_bos")),
        add_source_eos=bool(stored.scalar("with_source_eos")),
    )


def read_vocabularies(folder: str, unknown: str) -> tuple[list[str], list[str], str]:
    """Return the tokens of the source and of the target in the order of their ids, and the target's file.

    Both are one list if the model has one vocabulary. The unknown token is added as the last if the file lacks
    it, unless the model has many languages: such a file is refused.
    """
    shared = _vocabulary_file(folder, "shared_vocabulary")
    if shared is not None:
        tokens = _tokens_in(shared, unknown)
        return tokens, tokens, shared
    files = [_vocabulary_file(folder, f"{side}_vocabulary") for side in ("source", "target")]
    if files[0] is None and _vocabulary_file(folder, "source_1_vocabulary") is not None:
        raise UnsupportedModelError(f"{folder}: has source_1_vocabulary: factors are not supported")
    if files[0] is None or files[1] is None:
        raise CheckpointError(
            f"{folder}: has neither shared_vocabulary nor source_vocabulary and target_vocabulary (.json or .txt)"
        )
    return _tokens_in(files[0], unknown), _tokens_in(files[1], unknown), files[1]


def _vocabulary_file(folder: str, name: str) -> str | None:
    paths = (os.path.join(folder, f"{name}{suffix}") for suffix in (".json", ".txt"))
    return next(filter(os.path.lexists, paths), None)


def _tokens_in(file: str, unknown: str) -> list[str]:
    tokens = read_json_list(file) if file.endswith(".json") else _lines_in(file)
    try:
        "".join(tokens).encode()
    except UnicodeEncodeError:
        raise CheckpointError(f"{file}: has a token with half of a surrogate pair") from None
    if unknown in tokens:
        return tokens
    if num_languages_in(tokens):
        raise CheckpointError(f"{file}: lacks {shown(unknown)}, the `unk_token` of a model of many languages")
    return [*tokens, unknown]


def _lines_in(file: str) -> list[str]:
    lines: Sequence[str] = read_text(file).split("\n")  # a token may be another line separator, such as U+0085
    lines = lines[:-1] if not lines[-1] else lines
    # a token may end with a carriage return, unless all lines do
    has_returns = all(line.endswith("\r") for line in lines)
    return [line[:-1] for line in lines] if has_returns else [*lines]
