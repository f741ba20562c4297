"""The tokenizers of M2M100, mBART-50 and NLLB-200 by their pieces in `sentencepiece.bpe.model`.

The tokens of languages follow the pieces: in the order of `LANGUAGES`, which is that of transformers' tokenizers, or
as tokenizer.json lists them. Unlike in transformers, "</s>" and the tokens of languages are plain text where a source
contains them, and letters with several marks are composed, as by the sentencepiece library.
"""

import json
import os
import re
from collections.abc import Mapping, Sequence

from capsule_mt.engine.program import UnsupportedModelError
from capsule_mt.messages import shown
from capsule_mt.models.languages import ManyLanguages, language_codes_of
from capsule_mt.models.opening import read_file
from capsule_mt.models.sentencepiece import (
    CONTROL,
    UNKNOWN,
    SentencePieceEncoder,
    SentencePieceModel,
    joined_pieces,
    read_sentencepiece,
)
from capsule_mt.models.tokenizer import TOKENIZER_FILE, cleaned_up, read_tokenizer_config
from capsule_mt.models.weights import CheckpointError, read_json
from capsule_mt.text.tokenizer import Encoded

PIECES_FILE, VOCABULARY_FILE = "sentencepiece.bpe.model", "vocab.json"
BEGIN, PAD, END, UNKNOWN_TOKEN = FIRST_TOKENS = "<s>", "<pad>", "</s>", "<unk>"
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


class FairseqTokenizer(ManyLanguages):
    """The tokenizer of a checkpoint of these families, a `capsule_mt.text.tokenizer.Tokenizer`.

    Args:
        ids: the tokens of the pieces, and `FIRST_TOKENS`.
        special_ids: the tokens beside these, such as languages.
        source_language: the language of sources for a tokenizer_config.json that names none.
    """

    language_tokens: Sequence[str] = ()
    ends_with_language = False

    def __init__(
        self,
        folder: str | os.PathLike[str],
        model: SentencePieceModel,
        ids: Mapping[str, int],
        special_ids: Mapping[str, int],
        source_language: str | None = None,
    ) -> None:
        config = read_tokenizer_config(folder)
        self._encoder, self._ids = SentencePieceEncoder(model), ids
        self._tokens = {token_id: token for token, token_id in ids.items()}
        self.language_codes = language_codes_of(special_ids)
        self.vocabulary_sizes = (len({*ids.values(), *special_ids.values()}),) * 2
        self.unknown_id, self.end_id = ids[UNKNOWN_TOKEN], ids[END]
        self.special_ids = frozenset({ids[BEGIN], ids[PAD], ids[END], *special_ids.values()}) - {self.unknown_id}
        self.source_language = config.get("src_lang") or source_language
        self.cleans_up = bool(config.get("clean_up_tokenization_spaces"))

    @property
    def target_texts(self) -> dict[int, str]:
        return {token_id: text for token_id, text in self._tokens.items() if token_id not in self.special_ids}

    def encode_text(self, text: str) -> Encoded:
        pieces, spans = self._encoder.encode(text)
        unknown_id = self._ids[UNKNOWN_TOKEN]
        ids = [self._ids.get(piece, unknown_id) for piece in pieces]
        return Encoded(ids, [span if span[0] < span[1] else None for span in spans])

    def encode(self, text: str) -> Encoded:
        ids, offsets = self.encode_text(text)
        return Encoded([*ids, self.end_id], [*offsets, None])

    def encode_target(self, text: str) -> list[int]:
        return self.encode(text).ids

    def decode(self, ids: Sequence[int]) -> str:
        hidden_ids = self.special_ids | {self.unknown_id}
        text = joined_pieces([self._tokens.get(token_id, "") for token_id in ids if token_id not in hidden_ids])
        return cleaned_up(text) if self.cleans_up else text


def pieces_tokenizer(folder: str) -> FairseqTokenizer:
    """Read the pieces of M2M100 or mBART-50."""
    config, model = read_tokenizer_config(folder), read_sentencepiece(os.path.join(folder, PIECES_FILE))
    tokenizer_class, vocabulary_file = config.get("tokenizer_class"), os.path.join(folder, VOCABULARY_FILE)
    if os.path.exists(vocabulary_file):
        ids = _vocabulary(vocabulary_file)
        language_set = str(config.get("language_codes", "m2m100"))
        if language_set not in M2M100_SETS:
            raise UnsupportedModelError(
                f"{folder}: `language_codes` must be one of {', '.join(M2M100_SETS)}, got {language_set!r}"
            )
        tokens = [f"__{code}__" for code in LANGUAGES[language_set].split()]
        return FairseqTokenizer(folder, model, ids, _numbered(tokens, len(ids)), "en")
    if not str(tokenizer_class).startswith("MBart50"):
        raise UnsupportedModelError(
            f"{folder}: {PIECES_FILE} without tokenizer.json is read for M2M100 (with {VOCABULARY_FILE}) and "
            f"MBart50Tokenizer, not for `tokenizer_class` {tokenizer_class!r}: load and save the tokenizer with "
            "transformers, which writes tokenizer.json"
        )
    ids = _ids_of_pieces(model)
    tokens = [*LANGUAGES["mbart50"].split(), "<mask>"]
    return FairseqTokenizer(folder, model, ids, _numbered(tokens, len(ids)), "en_XX")


def nllb_tokenizer(folder: str) -> FairseqTokenizer | None:
    """Read an NLLB-200's pieces instead of its tokenizer.json: in a third of the time and half of the memory.

    `None`: a tokenizer of another family, or a tokenizer.json with tokens that these pieces and languages lack.
    """
    config = read_tokenizer_config(folder)
    if not str(config.get("tokenizer_class")).startswith("Nllb"):
        return None
    head = read_file(os.path.join(folder, TOKENIZER_FILE)).partition(b'"normalizer"')[0]
    match = re.search(rb'"added_tokens"\s*:\s*(\[.*\])', head, re.DOTALL)
    try:
        added_tokens = {token["content"]: token["id"] for token in json.loads(match[1])} if match else {}
    except (ValueError, TypeError, KeyError, RecursionError):  # `tokenizers` says what is wrong
        return None
    model = read_sentencepiece(os.path.join(folder, PIECES_FILE))
    ids = _ids_of_pieces(model)
    expected = {**_numbered(FIRST_TOKENS, 0), **_numbered([*added_tokens][len(FIRST_TOKENS) :], len(ids))}
    if [*added_tokens.items()] != [*expected.items()]:
        return None
    tokenizer = FairseqTokenizer(folder, model, ids, added_tokens)
    tokenizer.ends_with_language = bool(config.get("legacy_behaviour"))
    return tokenizer


def _ids_of_pieces(model: SentencePieceModel) -> dict[str, int]:
    """Return the token ids of mBART-50 and NLLB-200: those of `FIRST_TOKENS`, then those of the pieces."""
    pairs = zip(model.texts, model.kinds, strict=True)
    texts = [text for text, kind in pairs if kind not in (CONTROL, UNKNOWN)]
    return _numbered([*FIRST_TOKENS, *texts], 0)


def _numbered(tokens: Sequence[str], first_id: int) -> dict[str, int]:
    return {token: token_id for token_id, token in enumerate(tokens, first_id)}


def _vocabulary(file: str) -> dict[str, int]:
    """Read the id of each piece; n pieces have the ids 0 to n - 1."""
    vocabulary = read_json(file)
    if sorted(vocabulary.values(), key=str) != sorted(range(len(vocabulary)), key=str):
        raise CheckpointError(f"{file}: the ids of tokens must be 0 to {len(vocabulary) - 1}, each once")
    for token in FIRST_TOKENS:
        if token not in vocabulary:
            raise CheckpointError(f"{file}: lacks the token {shown(token)}")
    return vocabulary
