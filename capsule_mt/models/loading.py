"""From the folder of a checkpoint to a model that translates, without torch and transformers."""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from capsule_mt.engine.decoder import FIRST_TOKEN, EngineDecoder
from capsule_mt.engine.engine import Engine
from capsule_mt.engine.program import UnsupportedModelError
from capsule_mt.messages import shown
from capsule_mt.models.checking import check_calibration, check_generation, check_neutral_types
from capsule_mt.models.checksums import PIECES_CHECKSUMS
from capsule_mt.models.languages import many_languages
from capsule_mt.models.model import LoadedModel
from capsule_mt.models.opening import check_shortlist
from capsule_mt.models.registry import write_program
from capsule_mt.models.shipped import calibration_beside
from capsule_mt.models.weights import (
    INT8_FILE,
    SMALL_FILE,
    WEIGHTS_FILE,
    CheckpointError,
    SafetensorsFile,
    Weights,
    read_json,
)
from capsule_mt.options.table import CHANGES_TRANSLATIONS, SEARCH_OPTIONS, Candidates

if TYPE_CHECKING:  # imported late where used: most checkpoints need one of these at most
    from capsule_mt.models.checkpoint_tokenizer import FileTokenizer
    from capsule_mt.models.ctranslate2_checkpoint import CTranslate2Checkpoint
    from capsule_mt.models.fairseq_tokenizer import FairseqTokenizer
    from capsule_mt.models.marian_checkpoint import MarianCheckpoint
    from capsule_mt.models.marian_folder import MarianFolder
    from capsule_mt.models.marian_tokenizer import MarianTokenizer
    from capsule_mt.models.piece_tokenizer import PieceTokenizer
    from capsule_mt.models.shortlist import Shortlist

CONFIG_FILE, GENERATION_FILE = "config.json", "generation_config.json"
ADAPTER_CONFIG = "adapter_config.json"  # of weights that only transformers can put beside those of a model
TOKENIZERS = "source.spm", "tokenizer.json"
FAIRSEQ_PIECES = "sentencepiece.bpe.model"  # of M2M100, mBART-50 and NLLB-200
# a vocabulary may be rounded up to a multiple of one of these
PADDED_TO = (8, 16, 32, 64, 128)
MAX_LISTED = 4  # models in an error
MAX_MADE_UP = 8  # rows without a token: 2 of NLLB-200, 8 of M2M100
TOKENS = ("decoder_start_token_id", "eos_token_id", "pad_token_id", "forced_eos_token_id")


def load_model(
    folder: str | os.PathLike[str], *, int8: bool = False, shortlist: bool | str | os.PathLike[str] = False
) -> LoadedModel:
    """Load the checkpoint in a folder.

    Args:
        int8: multiply in int8, with a scale for each row.
        shortlist: score only the likely translations of a source's tokens: a file of `capsule-mt shortlist`, a
            `lex.*.bin` of Marian, or True for the one beside the checkpoint. If a model of many languages does not
            have one, True selects the tokens of the target's script.

    Raises:
        UnsupportedModelError: a model, a method or a tokenizer that the engine does not support.
        CheckpointError: a damaged file, or files that do not fit together.
        FileNotFoundError: `shortlist` is True, and there is none.
    """
    check_shortlist(shortlist)
    folder = os.fspath(folder)
    checkpoint = open_checkpoint(folder)
    config, generation = checkpoint.config, checkpoint.generation
    program, _ = write_program(config, checkpoint.weights, checkpoint.origin)
    calibration = {} if config.get("coverage_calibration") is None else config["coverage_calibration"]
    check_calibration(calibration, program.head_shape, checkpoint.calibrated_by)
    generation_file = os.path.join(folder, GENERATION_FILE)
    check_generation(
        generation, program.vocabulary, generation_file if os.path.lexists(generation_file) else checkpoint.origin
    )
    check_neutral_types(config, checkpoint.origin)  # which transformers reads there, too
    tokenizer = checkpoint.read_tokenizer()
    start, end, pad, at_end = _tokens(folder, config, generation, program.vocabulary)
    _check_tokenizer(folder, tokenizer.vocabulary_sizes, (program.embeddings, program.vocabulary))
    candidates: Candidates | None = None
    by_script = many_languages(tokenizer) if shortlist is True and not checkpoint.has_shortlist else None
    if by_script is not None:
        from capsule_mt.models.scripts import ScriptShortlist  # late: as the next one

        candidates = ScriptShortlist(by_script.target_texts, by_script.language_codes, start)
    elif shortlist:
        candidates = _lexical_shortlist(shortlist, checkpoint, (program.embeddings, program.vocabulary))
    decoder = EngineDecoder(
        Engine(program, int8=int8, shortlist=candidates is not None), start=start, end=end, pad=pad
    )
    return LoadedModel(
        decoder=decoder,
        tokenizer=tokenizer,
        name=folder,
        start=start,
        end=end,
        pad=pad,
        generation={**generation} | ({} if at_end is None else {"forced_eos_token_id": at_end}),
        calibration=calibration,
        longest_source=program.longest_source,
        longest_target=program.longest_target,
        head_shape=program.head_shape,
        shortlist=candidates,
        length_factor=checkpoint.length_factor,
    )


def _lexical_shortlist(
    shortlist: bool | str | os.PathLike[str],
    checkpoint: "HubCheckpoint | MarianCheckpoint | CTranslate2Checkpoint",
    vocabularies: tuple[int, int],
) -> "Shortlist":
    """Return the shortlist in a file, or with True the one beside the checkpoint, for vocabularies of these sizes."""
    from capsule_mt.models.shortlist import Shortlist

    if isinstance(shortlist, bool):
        candidates = checkpoint.read_shortlist()
    elif os.fspath(shortlist).endswith(".bin"):
        candidates = Shortlist.of_marian(shortlist, vocabularies)
    else:
        candidates = Shortlist.load(shortlist)
    candidates.check(*vocabularies)
    return candidates


class HubCheckpoint:
    """The checkpoint of transformers in a folder; `MarianCheckpoint` has the same interface.

    config, generation: what config.json and generation_config.json say; in older checkpoints, the first says both.
    origin: the path of config.json, for errors.
    calibrated_by: the path of the file with the calibration of coverage.
    length_factor: see `capsule_mt.models.model.LoadedModel`.
    """

    length_factor: float | None = None

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.origin = self.calibrated_by = os.path.join(folder, CONFIG_FILE)
        self.config = read_json(self.origin)
        calibration_file = calibration_beside(folder)
        if os.path.lexists(calibration_file):
            self._add_calibration(calibration_file)
        self.generation = _generation(folder, self.config)
        self.weights = weights_in(folder)

    def _add_calibration(self, file: str) -> None:
        """Read the calibration that an export has beside config.json."""
        calibration, name = read_json(file), "coverage_calibration"
        if self.config.get(name) not in (None, calibration):
            raise CheckpointError(f"{file}: differs from `{name}` of {self.origin}: remove one of them")
        self.config[name], self.calibrated_by = calibration, file

    def read_tokenizer(self) -> "FileTokenizer | MarianTokenizer | FairseqTokenizer | PieceTokenizer":
        has_pieces, has_json = (os.path.lexists(os.path.join(self.folder, name)) for name in TOKENIZERS)
        if os.path.lexists(os.path.join(self.folder, FAIRSEQ_PIECES)):
            from capsule_mt.models.fairseq_tokenizer import nllb_tokenizer, pieces_tokenizer

            tokenizer = nllb_tokenizer(self.folder) if has_json else pieces_tokenizer(self.folder)
            if tokenizer is not None:
                return tokenizer
        if os.path.lexists(os.path.join(self.folder, PIECES_CHECKSUMS)):
            from capsule_mt.models.piece_tokenizer import read_pieces_beside_json

            pieces = read_pieces_beside_json(self.folder, self.config["vocab_size"])
            if pieces is not None:
                return pieces
        if has_pieces and not has_json:
            from capsule_mt.models.marian_tokenizer import MarianTokenizer

            return MarianTokenizer(self.folder)
        from capsule_mt.models.checkpoint_tokenizer import FileTokenizer

        return FileTokenizer(self.folder)

    def tokenizer_jsons(self) -> list[dict[str, Any]]:
        """Return tokenizer.json, read or made, and target_tokenizer.json if each language has its own."""
        from capsule_mt.models.checkpoint_tokenizer import TARGET_TOKENIZER_FILE, TOKENIZER_FILE

        source, *targets = (os.path.join(self.folder, name) for name in (TOKENIZER_FILE, TARGET_TOKENIZER_FILE))
        if not os.path.lexists(source):
            from capsule_mt.models.marian_tokenizer import MarianTokenizer

            return MarianTokenizer(self.folder).tokenizer_jsons()
        return [read_json(source), *map(read_json, filter(os.path.lexists, targets))]

    @property
    def has_shortlist(self) -> bool:
        from capsule_mt.models.shortlist import FILE_NAME

        return os.path.lexists(os.path.join(self.folder, FILE_NAME))

    def read_shortlist(self) -> "Shortlist":
        from capsule_mt.models.shortlist import Shortlist

        return Shortlist.load(self.folder)


def open_checkpoint(folder: str) -> "HubCheckpoint | MarianCheckpoint | CTranslate2Checkpoint":
    """Return the checkpoint in a folder: of transformers, of Marian, or of CTranslate2."""
    if is_ctranslate2(folder):
        from capsule_mt.models.ctranslate2_checkpoint import CTranslate2Checkpoint

        return CTranslate2Checkpoint(folder)
    files = find_model(folder)
    if files is None:
        return HubCheckpoint(folder)
    from capsule_mt.models.marian_checkpoint import MarianCheckpoint

    return MarianCheckpoint(files)


def is_adapter(folder: str | os.PathLike[str]) -> bool:
    """Return whether a folder has an adapter of peft, and no config.json."""
    has_config, has_adapter = (os.path.isfile(os.path.join(folder, name)) for name in (CONFIG_FILE, ADAPTER_CONFIG))
    return has_adapter and not has_config


def refuse_adapter(folder: str | os.PathLike[str]) -> None:
    """Refuse an adapter where a model is needed, and say how both become one."""
    if is_adapter(folder):
        raise CheckpointError(
            f"{os.fspath(folder)}: is an adapter, not a model: translate with it by `capsule-mt translate`; if it "
            f"stands beside a Marian, merge both by `capsule-mt export {os.fspath(folder)} OUT`, and use OUT"
        )


def is_ctranslate2(folder: str | os.PathLike[str]) -> bool:
    """Return whether a folder has a model of CTranslate2, or is a package of Argos Translate."""
    # a file of this name may also be Marian's
    if not any(os.path.lexists(os.path.join(folder, name)) for name in ("model.bin", "metadata.json")):
        return False
    from capsule_mt.models.ctranslate2_folder import folder_of_model

    return folder_of_model(folder) is not None


def refuse_ctranslate2(folder: str | os.PathLike[str]) -> None:
    """Refuse to write a model of CTranslate2 in another format."""
    if is_ctranslate2(folder):
        raise UnsupportedModelError(
            f"{os.fspath(folder)}: is a model of CTranslate2, which is not converted: translate with it as it is, or "
            "convert the model that it was made from"
        )


def find_model(folder: str) -> "MarianFolder | None":
    """Return the files of a folder with a model of Marian; `None` for a checkpoint of transformers.

    Raises:
        CheckpointError: there is neither.
    """
    if os.path.lexists(os.path.join(folder, CONFIG_FILE)):
        return None
    from capsule_mt.models.marian_folder import MarianFolder

    files = MarianFolder.find(folder)
    if files is None:
        refuse_adapter(folder)
        problem = f"has neither {CONFIG_FILE} nor a model of Marian"
        if not os.path.isdir(folder):
            problem = "is a file, name the model's folder" if os.path.exists(folder) else "no such folder"
        raise CheckpointError(f"{folder}: {problem}{_models_inside(folder)}")
    return files


def _models_inside(folder: str) -> str:
    """Return the part of an error that names the models in the folders of a folder; empty if there are none."""
    import glob  # late: this is an error
    import shlex

    from capsule_mt.models.marian_folder import is_model_file

    models = {
        os.path.dirname(path)
        for path in glob.glob(os.path.join(glob.escape(folder), "*", "*"))
        if os.path.basename(path) == CONFIG_FILE or is_model_file(os.path.basename(path))
    }
    listed = " ".join(map(shlex.quote, sorted(models)[:MAX_LISTED])) + (" ..." if len(models) > MAX_LISTED else "")
    return f"; it holds models, name one, or several for `serve`: {listed}" if models else ""


def is_marian(folder: str | os.PathLike[str]) -> bool:
    """Return whether a folder has a model of Marian's and none of transformers."""
    from capsule_mt.models.marian_folder import MarianFolder

    is_other = os.path.lexists(os.path.join(folder, CONFIG_FILE)) or is_ctranslate2(folder)
    return not is_other and MarianFolder.find(folder) is not None


def conversion_advice(folder: str) -> str:
    """Return what to do with a folder of Marian where a checkpoint is needed; an empty text for another folder."""
    import shlex  # late: few folders need advice

    from capsule_mt.models.marian_folder import has_model_file

    if is_ctranslate2(folder) or not has_model_file(folder):
        return ""
    command = f"capsule-mt convert {shlex.quote(folder)} OUT --to huggingface"
    return f", but a folder of Marian: convert it by `{command}`, and use OUT"


def weights_in(folder: str) -> Weights:
    if os.path.lexists(os.path.join(folder, SMALL_FILE)) and not os.path.lexists(os.path.join(folder, WEIGHTS_FILE)):
        from capsule_mt.models.small_weights import SmallFile

        return SmallFile(folder)
    if os.path.lexists(os.path.join(folder, INT8_FILE)) and not os.path.lexists(os.path.join(folder, WEIGHTS_FILE)):
        from capsule_mt.models.int8_weights import Int8File

        return Int8File(folder)
    if _has_weights(folder, SafetensorsFile):
        return SafetensorsFile.in_folder(folder)
    from capsule_mt.models.pickled import PickledFile  # late: most checkpoints have safetensors

    return (PickledFile if _has_weights(folder, PickledFile) else SafetensorsFile).in_folder(folder)


def _has_weights(folder: str, files: type[SafetensorsFile]) -> bool:
    return any(os.path.exists(os.path.join(folder, name)) for name in (files.FILE, files.INDEX))


def _generation(folder: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the defaults of generating, as transformers reads them."""
    file = os.path.join(folder, GENERATION_FILE)
    if os.path.lexists(file):
        return read_json(file)
    # older checkpoints have these in config.json; the engine then refuses those that it lacks, by name
    names = (FIRST_TOKEN, *(option.name for option in SEARCH_OPTIONS))
    settings = {name: config[name] for name in names if config.get(name) is not None}
    return settings | {name: config[name] for name in CHANGES_TRANSLATIONS if config.get(name)}


def _tokens(
    folder: str, config: Mapping[str, Any], generation: Mapping[str, Any], vocabulary: int
) -> tuple[int, int, int, int | None]:
    """Return the token ids of start, end (-1 for none) and padding, and the id forced at the limit."""
    # beside a generation_config.json, `generate()` does not read config.json
    has_file = os.path.lexists(os.path.join(folder, GENERATION_FILE))
    start_name, *other_names = TOKENS
    settings = generation if has_file else {**config, **generation}
    if settings.get(start_name) is None and (settings.get("bos_token_id") is not None or not config.get(start_name)):
        start_name = "bos_token_id"  # as transformers does
    token_ids: list[int | None] = []
    for name in (start_name, *other_names):
        file, value = GENERATION_FILE, generation.get(name)
        if value is None and not (has_file and name == "forced_eos_token_id"):
            file, value = CONFIG_FILE, config.get(name)
            if has_file and name == "eos_token_id" and value is not None:
                raise CheckpointError(
                    f"{os.path.join(folder, GENERATION_FILE)}: lacks `{name}`, without which `generate()` of "
                    f"transformers does not end a translation: copy it from {CONFIG_FILE}"
                )
        if isinstance(value, list) and len(value) == 1:
            value = value[0]
        if isinstance(value, list):
            raise UnsupportedModelError(
                f"{os.path.join(folder, file)}: `{name}` {shown(value)} is not supported by the engine, only one"
            )
        if value is not None and (type(value) is not int or not 0 <= value < vocabulary):
            last = vocabulary - 1
            raise CheckpointError(
                f"{os.path.join(folder, file)}: `{name}` is {shown(value)}, but the vocabulary has the tokens 0 to "
                f"{last}"
            )
        token_ids.append(value)
    start, end, pad, at_end = token_ids
    if start is None:
        raise CheckpointError(f"{os.path.join(folder, CONFIG_FILE)}: lacks `{TOKENS[0]}`")
    return start, -1 if end is None else end, max(end or 0, 0) if pad is None else pad, at_end


def _check_tokenizer(folder: str, tokenizer_sizes: tuple[int, int], model_sizes: tuple[int, int]) -> None:
    """Refuse a tokenizer whose sizes differ from those of the model's vocabularies, which may be padded."""
    for side, size, tokens in zip(("source", "target"), model_sizes, tokenizer_sizes, strict=True):
        padded = (-(-tokens // multiple) * multiple for multiple in PADDED_TO)
        if size not in (tokens, *padded) and not 0 < size - tokens <= MAX_MADE_UP:
            raise CheckpointError(
                f"{folder}: the tokenizer has {tokens} tokens, but the {side} vocabulary of the model has {size}"
            )
