"""The tokenizers of M2M100, mBART-50, NLLB-200 and XLM-R by their pieces in `sentencepiece.bpe.model`.

The tokens of languages follow the pieces: in the order of `LANGUAGES`, which is that of transformers' tokenizers, or
as tokenizer.json or a vocabulary lists them. Unlike in transformers, "</s>" and the tokens of languages are plain text
where a source contains them, and letters with several marks are composed, as by the sentencepiece library.
"""

import json
import os
import re
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import takewhile
from typing import NamedTuple

from capsule_mt.engine.program import UnsupportedModelError
from capsule_mt.messages import shown
from capsule_mt.models.checkpoint_tokenizer import TOKENIZER_FILE, cleaned_up, read_tokenizer_config
from capsule_mt.models.languages import LANGUAGE_TOKEN, ManyLanguages, language_codes_of
from capsule_mt.models.opening import open_file
from capsule_mt.models.piece_tokenizer import TokenEncoder, TokenIds
from capsule_mt.models.sentencepiece import (
    CONTROL,
    UNKNOWN,
    SentencePieceEncoder,
    joined_pieces,
    read_sentencepiece,
)
from capsule_mt.models.weights import CheckpointError, read_json
from capsule_mt.text.tokenizer_protocol import Encoded, byte_ids_of

PIECES_FILE, VOCABULARY_FILE = "sentencepiece.bpe.model", "vocab.json"
FIRST_TOKENS = "<s>", "<pad>", "</s>", "<unk>"
MAX_HEAD_SIZE = 1 << 20  # bytes of a tokenizer.json that may come before its pieces
NUM_CONTROLS = 3  # the first pieces of these models: "<unk>", "<s>" and "</s>"
LANGUAGES = {
    "m2m100": """
    af am ar ast az ba be bg bn br bs ca ceb cs cy da de el en es et fa ff fi fr fy ga gd gl gu ha he hi hr ht hu hy id
    ig ilo is it ja jv ka kk km kn ko lb lg ln lo lt lv mg mk ml mn mr ms my ne nl no ns oc or pa pl ps pt ro ru sd si
    sk sl so sq sr ss su sv sw ta th tl tn tr uk ur uz vi wo xh yi yo zh zu
    """,
    "wmt21": "en ha is ja cs ru zh de",
    "mbart50": """
    ar_AR cs_CZ de_DE en_XX es_XX et_EE fi_FI fr_XX gu_IN hi_IN it_IT ja_XX kk_KZ ko_KR lt_LT lv_LV my_MM ne_NP nl_XX
    ro_RO ru_RU si_LK tr_TR vi_VN zh_CN af_ZA az_AZ bn_IN fa_IR he_IL hr_HR id_ID ka_GE km_KH mk_MK ml_IN mn_MN mr_IN
    pl_PL ps_AF pt_XX sv_SE sw_KE ta_IN te_IN th_TH tl_XX uk_UA ur_PK xh_ZA gl_ES sl_SI
    """,
}
M2M100_SETS = ("m2m100", "wmt21")


class _Pieces(NamedTuple):
    """What cuts text into pieces.

    ids: of the pieces, by their texts.
    first_ids: of `FIRST_TOKENS`.
    texts: of the pieces; each has its index plus `shift` as its id.
    """

    encoder: SentencePieceEncoder
    ids: TokenIds
    first_ids: Sequence[int]
    texts: Sequence[str]
    shift: int = 0

    @property
    def size(self) -> int:
        return len(self.texts) + self.shift


class FairseqTokenizer(ManyLanguages):
    """The tokenizer of a checkpoint of these families, a `capsule_mt.text.tokenizer_protocol.Tokenizer`.

    Args:
        further_tokens: the tokens after those of the pieces, such as languages.
        source_language: the language of sources for a tokenizer_config.json that names none.
    """

    language_tokens: Sequence[str] = ()
    ends_with_language = False

    def __init__(
        self,
        folder: str | os.PathLike[str],
        pieces: _Pieces,
        further_tokens: Iterable[str],
        source_language: str | None = None,
    ) -> None:
        config = read_tokenizer_config(folder)
        self._pieces, self._encoder = pieces, TokenEncoder(pieces.encoder, pieces.ids.__getitem__)
        further_ids = {token: token_id for token_id, token in enumerate(further_tokens, pieces.size)}
        self.language_codes = language_codes_of(further_ids)
        self.vocabulary_sizes = (pieces.size + len(further_ids),) * 2
        begin, pad, self.end_id, self.unknown_id = pieces.first_ids
        self.special_ids = frozenset({begin, pad, self.end_id, *further_ids.values()})
        self._hidden_ids = self.special_ids | {self.unknown_id}
        self.source_language = config.get("src_lang") or source_language
        self.cleans_up = bool(config.get("clean_up_tokenization_spaces"))

    @property
    def target_texts(self) -> dict[int, str]:
        texts = dict(enumerate(self._pieces.texts, self._pieces.shift))
        texts[self._pieces.first_ids[-1]] = FIRST_TOKENS[-1]  # where shifted pieces have "</s>"
        return {token_id: text for token_id, text in texts.items() if token_id not in self.special_ids}

    @cached_property
    def byte_ids(self) -> frozenset[int]:
        return byte_ids_of(self._pieces.ids.__getitem__, self.unknown_id)

    @property
    def target_byte_ids(self) -> frozenset[int]:
        return self.byte_ids

    def encode_text(self, text: str) -> Encoded:
        return self._encoder.encode(text)

    def encode(self, text: str) -> Encoded:
        return self._encoder.encode(text, [self.end_id])

    def encode_target(self, text: str) -> list[int]:
        return self.encode(text).ids

    def decode(self, ids: Sequence[int]) -> str:
        texts, shift, size = self._pieces.texts, self._pieces.shift, self._pieces.size
        # the model may have rows beyond the last token
        shown_ids = (token_id for token_id in ids if token_id < size and token_id not in self._hidden_ids)
        text = joined_pieces([texts[token_id - shift] for token_id in shown_ids])
        return cleaned_up(text) if self.cleans_up else text


class XlmRobertaTokenizer:
    """The tokenizer of XLM-R and of encoders with its pieces, such as multilingual E5.

    size: the number of tokens, with "<mask>" behind the pieces.
    """

    def __init__(self, folder: str) -> None:
        pieces = _ordered_pieces(folder)
        self.size = pieces.size + 1
        self._encoder = TokenEncoder(pieces.encoder, pieces.ids.__getitem__)
        self._begin, _, self._end, _ = pieces.first_ids

    def encode(self, text: str) -> Encoded:
        """Encode a text between "<s>" and "</s>"."""
        encoded = self._encoder.encode(text, [self._end])
        return encoded._replace(ids=[self._begin, *encoded.ids], offsets=[None, *encoded.offsets])


def pieces_tokenizer(folder: str) -> FairseqTokenizer:
    """Read the pieces of M2M100 or mBART-50."""
    config, vocabulary_file = read_tokenizer_config(folder), os.path.join(folder, VOCABULARY_FILE)
    if os.path.exists(vocabulary_file):
        pieces = _numbered_pieces(folder, vocabulary_file)
        language_set = str(config.get("language_codes", "m2m100"))
        if language_set not in M2M100_SETS:
            raise UnsupportedModelError(
                f"{folder}: `language_codes` must be one of {', '.join(M2M100_SETS)}, got {language_set!r}"
            )
        return FairseqTokenizer(folder, pieces, [f"__{code}__" for code in LANGUAGES[language_set].split()], "en")
    tokenizer_class = config.get("tokenizer_class")
    if not str(tokenizer_class).startswith("MBart50"):
        raise UnsupportedModelError(
            f"{folder}: {PIECES_FILE} without tokenizer.json is read for M2M100 (with {VOCABULARY_FILE}) and "
            f"MBart50Tokenizer, not for `tokenizer_class` {tokenizer_class!r}: load and save the tokenizer with "
            "transformers, which writes tokenizer.json"
        )
    return FairseqTokenizer(folder, _ordered_pieces(folder), [*LANGUAGES["mbart50"].split(), "<mask>"], "en_XX")


def nllb_tokenizer(folder: str) -> FairseqTokenizer | None:
    """Read an NLLB-200's pieces instead of its tokenizer.json, which takes longer and more memory.

    `None`: a tokenizer of another family, or a tokenizer.json whose further tokens do not follow these pieces.
    """
    config = read_tokenizer_config(folder)
    if not str(config.get("tokenizer_class")).startswith("Nllb"):
        return None
    with open_file(os.path.join(folder, TOKENIZER_FILE)) as stream:
        head = stream.read(MAX_HEAD_SIZE).partition(b'"normalizer"')[0]
    match = re.search(rb'"added_tokens"\s*:\s*(\[.*\])', head, re.DOTALL)
    try:
        added_tokens = [(token["id"], token["content"]) for token in json.loads(match[1])] if match else []
    except (ValueError, TypeError, KeyError, RecursionError):  # `tokenizers` says what is wrong
        return None
    pieces = _ordered_pieces(folder)
    further_tokens = [token for _, token in added_tokens[len(FIRST_TOKENS) :]]
    if added_tokens != [*enumerate(FIRST_TOKENS), *enumerate(further_tokens, pieces.size)]:
        return None
    tokenizer = FairseqTokenizer(folder, pieces, further_tokens)
    tokenizer.ends_with_language = bool(config.get("legacy_behaviour"))
    return tokenizer


def num_languages_in(tokens: Sequence[str]) -> int:
    """Return how many tokens at the end of a list are languages, "<mask>", or fill the list; 0 without a language."""
    is_last = re.compile(rf"{LANGUAGE_TOKEN}|<mask>|madeupword\d+")
    count = sum(1 for _ in takewhile(is_last.fullmatch, reversed(tokens)))
    return count if any(re.fullmatch(LANGUAGE_TOKEN, token) for token in tokens[len(tokens) - count :]) else 0


def listed_tokenizer(folder: str, pieces_file: str, tokens: Sequence[str], origin: str) -> FairseqTokenizer:
    """Return a tokenizer whose tokens are listed in the order of their ids, those of languages last.

    Args:
        origin: the file of the list, for errors.
    """
    texts = tokens[: len(tokens) - num_languages_in(tokens)]
    ids = {token: index for index, token in reversed([*enumerate(texts)])}
    tokenizer = FairseqTokenizer(folder, _listed_pieces(ids, texts, pieces_file, origin), tokens[len(texts) :])
    tokenizer.ends_with_language = bool(read_tokenizer_config(folder).get("legacy_behaviour"))
    return tokenizer


def _numbered_pieces(folder: str, vocabulary_file: str) -> _Pieces:
    """Return the pieces of M2M100: a file has the ids of n pieces, 0 to n - 1."""
    ids = read_json(vocabulary_file)
    if sorted(ids.values(), key=str) != sorted(range(len(ids)), key=str):
        raise CheckpointError(f"{vocabulary_file}: the ids of tokens must be 0 to {len(ids) - 1}, each once")
    texts = sorted(ids, key=ids.__getitem__)
    return _listed_pieces(ids, texts, os.path.join(folder, PIECES_FILE), vocabulary_file)


def _listed_pieces(ids: dict[str, int], texts: Sequence[str], pieces_file: str, origin: str) -> _Pieces:
    """Return pieces with these ids and texts; `ids` then lacks `FIRST_TOKENS`, which no text becomes."""
    for token in FIRST_TOKENS:
        if token not in ids:
            raise CheckpointError(f"{origin}: lacks the token {shown(token)}")
    encoder = SentencePieceEncoder(read_sentencepiece(pieces_file))
    *first_ids, unknown_id = (ids.pop(token) for token in FIRST_TOKENS)
    return _Pieces(encoder, TokenIds(ids, unknown_id, lambda _: None), [*first_ids, unknown_id], texts)


def _ordered_pieces(folder: str) -> _Pieces:
    """Return the pieces of mBART-50 or NLLB-200: their ids follow `FIRST_TOKENS` in the order of the pieces."""
    model = read_sentencepiece(os.path.join(folder, PIECES_FILE))
    if not {*model.kinds[:NUM_CONTROLS]} <= {CONTROL, UNKNOWN}:
        raise CheckpointError(f'{model.file}: its first pieces must be "<unk>", "<s>" and "</s>"')
    encoder, shift = SentencePieceEncoder(model), len(FIRST_TOKENS) - NUM_CONTROLS

    def id_of(text: str) -> int | None:
        index = encoder.token_of(text)
        return None if index is None else index + shift

    unknown_id = FIRST_TOKENS.index("<unk>")
    return _Pieces(encoder, TokenIds({}, unknown_id, id_of), range(len(FIRST_TOKENS)), model.texts, shift)
