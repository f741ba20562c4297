"""A folder of CTranslate2, or a package of Argos Translate, as a checkpoint, without changing its files.

Tokens are those of its vocabularies, in their order; SentencePiece models beside them cut text. If the decoder first
reads zeros, as Marian's does, one more token follows, which starts and has an embedding of zeros.
"""

import os
from typing import Any

from capsule_mt.engine.program import UnsupportedModelError
from capsule_mt.messages import shown
from capsule_mt.models.ctranslate2_files import CTranslate2File
from capsule_mt.models.ctranslate2_folder import CTranslate2Folder, read_vocabularies, settings_of
from capsule_mt.models.ctranslate2_weights import EPSILON, CTranslate2Weights, config_of, layers_of
from capsule_mt.models.fairseq_tokenizer import FairseqTokenizer, listed_tokenizer, num_languages_in
from capsule_mt.models.piece_tokenizer import LANGUAGE_PREFIX, PAD, NumberedPieces, PieceTokenizer
from capsule_mt.models.shipped import calibration_beside
from capsule_mt.models.shortlist import Shortlist
from capsule_mt.models.weights import CheckpointError, read_json

# as CTranslate2 searches by default, and Argos Translate
SEARCH = {"num_beams": 2, "length_penalty": 1.0}
ARGOS_SEARCH = {"num_beams": 4, "length_penalty": 0.2}
PADS = PAD, "<blank>"
VOCABULARY_MAP = "vmap.txt"


class CTranslate2Checkpoint:
    """The checkpoint in a folder, with the interface of `capsule_mt.models.loading.HubCheckpoint`."""

    length_factor: float | None = None

    def __init__(self, folder: str) -> None:
        self.files = files = CTranslate2Folder.find(folder)
        self.origin, self.calibrated_by = files.model, calibration_beside(folder)
        stored = CTranslate2File(files.model)
        self._settings = settings_of(stored)
        folder, unknown = os.path.dirname(files.model), self._settings.unk_token
        self._source_tokens, self._target_tokens, self._vocabulary = read_vocabularies(folder, unknown)
        epsilon = self._settings.layer_norm_epsilon or EPSILON
        self._layers = layers_of(stored, epsilon=epsilon, one_vocabulary=self._source_tokens is self._target_tokens)
        self.weights = CTranslate2Weights(stored, self._layers)
        added = int(self._layers.zero_start)
        self.sizes = (
            len(self._source_tokens) + added * self.weights.shares_embeddings,
            len(self._target_tokens) + added,
        )
        end = self._id_of("eos_token", self._settings.eos_token)
        start = len(self._target_tokens) if added else self._start()
        pads = [self._target_tokens.index(pad) for pad in PADS if pad in self._target_tokens]
        fields = {"decoder_start_token_id": start, "eos_token_id": end}
        # no sentence has this token; it must not be the first one, as the padding token of an M2M100 has no position
        fields["pad_token_id"] = next(pad for pad in (*pads, end, 0, 1) if pad != start)
        self.config: dict[str, Any] = {
            **config_of(self._layers, self.weights, self.sizes),
            "is_encoder_decoder": True,
            **fields,
        }
        if os.path.lexists(self.calibrated_by):
            self.config["coverage_calibration"] = read_json(self.calibrated_by)
        self._has_languages = (
            self.files.metadata is None and not added and start == end and num_languages_in(self._target_tokens) > 0
        )
        self.generation = self._generation(fields, start)

    def _id_of(self, name: str, token: str) -> int:
        if token not in self._target_tokens:
            raise CheckpointError(f"{self._vocabulary}: lacks {shown(token)}, the `{name}` of the model")
        return self._target_tokens.index(token)

    def _start(self) -> int:
        token = self._settings.decoder_start_token
        if token is None:
            raise UnsupportedModelError(
                f"{self.origin}: `decoder_start_token` is null: a model whose first token each call names is not "
                "supported"
            )
        return self._id_of("decoder_start_token", token)

    def _generation(self, fields: dict[str, int], start: int) -> dict[str, Any]:
        prefix = "" if self.files.metadata is None else self.files.metadata.get("target_prefix", "")
        first = {"forced_bos_token_id": self._id_of("target_prefix", prefix)} if prefix else {}
        return {
            **(SEARCH if self.files.metadata is None else ARGOS_SEARCH),
            "min_new_tokens": 1,  # of which one that is forced is the first
            **({"suppress_tokens": [start]} if self._layers.zero_start else {}),
            **first,
            **fields,
        }

    def read_tokenizer(self) -> PieceTokenizer | FairseqTokenizer:
        if self._has_languages:
            if self._source_tokens is not self._target_tokens:
                raise UnsupportedModelError(f"{self.files.folder}: has languages, and two vocabularies")
            return listed_tokenizer(
                os.path.dirname(self.origin), self.files.pieces[0], self._target_tokens, self._vocabulary
            )
        settings, prefix = self._settings, (self.files.metadata or {}).get("target_prefix", "")
        hidden = {settings.bos_token, settings.decoder_start_token or "", prefix, *PADS}
        hidden |= {token for token in self._target_tokens if LANGUAGE_PREFIX.fullmatch(token)}
        source, target = (
            NumberedPieces(
                pieces, tokens, self._vocabulary, end=settings.eos_token, unknown=settings.unk_token, hidden=hidden
            )
            for pieces, tokens in zip(self.files.pieces, (self._source_tokens, self._target_tokens), strict=True)
        )
        if (source.end, source.unknown) != (target.end, target.unknown):
            raise UnsupportedModelError(
                f"{self._vocabulary}: has other ids for {shown(settings.eos_token)} and {shown(settings.unk_token)} "
                "than the vocabulary of the source"
            )
        # converters of transformers leave the end of a Marian's source to the caller, as its tokenizer adds it
        ends = settings.add_source_eos or (self._layers.zero_start and self.files.metadata is None)
        before = [source.tokens[settings.bos_token]] if settings.add_source_bos else []
        added = range(len(self._target_tokens), self.sizes[1])
        special = target.hidden | set(added)
        return PieceTokenizer(source, target, self.sizes, special, (before, [source.end] if ends else []))

    def tokenizer_jsons(self) -> list[dict[str, Any]]:
        raise UnsupportedModelError(
            f"{self.files.folder}: the tokens of a model of CTranslate2 are not converted: convert the model that it "
            "was converted from"
        )

    @property
    def has_shortlist(self) -> bool:
        return False

    def read_shortlist(self) -> Shortlist:
        raise FileNotFoundError(
            f"there is no shortlist in {self.files.folder}; {VOCABULARY_MAP} of CTranslate2 is not read"
        )
