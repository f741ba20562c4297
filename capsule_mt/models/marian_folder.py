"""Find the files of a model in a folder of Marian's: weights, vocabularies, shortlist, configuration."""

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from capsule_mt.engine.program import UnsupportedModelError
from capsule_mt.messages import shown
from capsule_mt.models.marian_files import OPTIONS, open_marian, options_of
from capsule_mt.models.marian_options import refuse_unsupported
from capsule_mt.models.marian_order import order_of_vocabularies
from capsule_mt.models.marian_yaml import read_yaml
from capsule_mt.models.opening import open_file, read_text
from capsule_mt.models.piece_tokenizer import PIECES_FILES
from capsule_mt.models.weights import CheckpointError

BEST = ".best-"  # in the names of models and configurations that training saves by a metric
UNPACKERS = {".gz": "gunzip *.gz", ".zst": "zstd -d *.zst", ".xz": "unxz *.xz", ".bz2": "bunzip2 *.bz2"}
NUMBERED = ".yml", ".yaml", ".json", ".txt", ".vocab"  # vocabularies that do not cut text


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
        numbered = [name for name in names if _gives_ids(name)]
        numbered = numbered or [name for name in names if _begins_with_ids(folder, name)]
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


def _begins_with_ids(folder: str, name: str) -> bool:
    """Return whether a `.yml` of any name is a vocabulary, which begins with the id of `</s>`."""
    if not name.endswith((".yml", ".yaml")) or not os.path.isfile(os.path.join(folder, name)):
        return False
    with open_file(os.path.join(folder, name)) as stream:
        return re.match(rb"[\"']?</s>[\"']?: *0\s", stream.read(80)) is not None


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
    """Return whether a folder has a file named like Marian's models; it may lack the other files."""
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


def _gives_ids(name: str) -> bool:
    """Whether a file is a vocabulary that gives pieces their ids: vocab.yml, opus.vocab.yml, vocab.deen.yml."""
    stem, suffix = os.path.splitext(name)
    return suffix in (".yml", ".yaml", ".json") and "vocab" in re.split("[._-]", stem)
