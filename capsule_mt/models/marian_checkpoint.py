"""A folder of Marian's, such as a student of Firefox Translations, as a checkpoint, without changing its files.

Tokens come from the SentencePiece vocabularies, or from Marian's own (such as *.yml) beside these. One more token
follows the longer vocabulary, which pads and starts: its embedding is zeros, as is what Marian's decoder reads first.
"""

import os
from typing import Any

from capsule_mt.engine.program import UnsupportedModelError
from capsule_mt.messages import shown
from capsule_mt.models.marian_decoder import decoder_options_of, with_options_beside
from capsule_mt.models.marian_files import OPTIONS, open_marian, options_of
from capsule_mt.models.marian_folder import MarianFolder
from capsule_mt.models.marian_options import POSITIONS, config_of, refuse_unsupported
from capsule_mt.models.marian_weights import MarianWeights
from capsule_mt.models.piece_tokenizer import PAD, NumberedPieces, Pieces, PieceTokenizer, tokenizer_json
from capsule_mt.models.shipped import calibration_file
from capsule_mt.models.shortlist import Shortlist, refuse_text
from capsule_mt.models.weights import CheckpointError, read_json

AnyPieces = Pieces | NumberedPieces
MAX_LENGTH = 512  # tokens, for `generate()`, which needs a limit


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
            **config_of(options, self.origin, self.size),
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
        return PieceTokenizer(*self.pieces, (self.size, self.size), (self.pieces[0].end, self.size - 1))

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
        from capsule_mt.models.marian_yaml import read_vocabulary  # late: other vocabularies have no such file

        source, target = (
            NumberedPieces(pieces, sorted(numbers, key=numbers.__getitem__), vocabulary)
            for pieces, vocabulary in zip(files.pieces, files.vocabularies, strict=True)
            for numbers in [read_vocabulary(vocabulary)]
        )
    else:
        if not target_file.endswith(".spm"):
            raise UnsupportedModelError(f"{target_file}: is not a SentencePiece model (*.spm), but {source_file} is")
        source = Pieces(source_file)
        target = source if source_file == target_file else Pieces(target_file)
    if (source.end, source.unknown) != (target.end, target.unknown):
        raise UnsupportedModelError(f"{target_file}: has other ids for `</s>` and `<unk>` than {source_file}")
    return source, target
