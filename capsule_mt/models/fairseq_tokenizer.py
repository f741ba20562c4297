"""The tokenizers of M2M100, mBART-50 and NLLB-200 by their pieces in `sentencepiece.bpe.model`.

The tokens of languages follow the pieces: in the order of `LANGUAGES`, which is that of transformers' tokenizers, or
as tokenizer.json lists them. Unlike in transformers, "</s>" and the tokens of languages are plain text where a source
contains them, and letters with several marks are composed, as by the sentencepiece library.
"""

import json
import os
import re
from collections.abc import Mapping, Sequence
from functools import partial

from capsule_mt.engine.program import UnsupportedModelError
from capsule_mt.messages import shown
from capsule_mt.models.languages import language_codes_of, pair_tokenizer
from capsule_mt.models.opening import read_file
from capsule_mt.models.sentencepiece import CONTROL, UNKNOWN, SentencePieceEncoder, joined_pieces, read_sentencepiece
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


class FairseqTokenizer:
    """The tokenizer of a checkpoint of these families, a `capsule_mt.text.tokenizer.Tokenizer`.

    added_tokens: of an NLLB-200, the ids of the tokens beside the pieces.
    """

    language_tokens: Sequence[str] = ()

    def __init__(self, folder: str | os.PathLike[str], added_tokens: Mapping[str, int] | None = None) -> None:
        config = read_tokenizer_config(folder)
        model = read_sentencepiece(os.path.join(folder, PIECES_FILE))
        self._encoder = SentencePieceEncoder(model)
        vocabulary_file = os.path.join(folder, VOCABULARY_FILE)
        is_m2m = added_tokens is None and os.path.exists(vocabulary_file)
        tokenizer_class = config.get("tokenizer_class")
        if added_tokens is None and not is_m2m and not str(tokenizer_class).startswith("MBart50"):
            raise UnsupportedModelError(
                f"{os.fspath(folder)}: {PIECES_FILE} without tokenizer.json is read for M2M100 (with "
                f"{VOCABULARY_FILE}) and MBart50Tokenizer, not for `tokenizer_class` {tokenizer_class!r}: "
                "load and save the tokenizer with transformers, which writes tokenizer.json"
            )
        if is_m2m:
            self._ids = _vocabulary(vocabulary_file)
            language_set = str(config.get("language_codes", "m2m100"))
            if language_set not in LANGUAGES:
                raise UnsupportedModelError(
                    f"{os.fspath(folder)}: `language_codes` must be one of {', '.join(LANGUAGES)}, "
                    f"got {language_set!r}"
                )
        else:
            special_kinds = (CONTROL, UNKNOWN)
            texts = [text for text, kind in zip(model.texts, model.kinds, strict=True) if kind not in special_kinds]
            self._ids = {text: index for index, text in enumerate([*FIRST_TOKENS, *texts])}
            language_set = "mbart50"
        first_language_id = len(self._ids)
        if added_tokens is None:
            codes = LANGUAGES[language_set].split()
            self.language_codes = {code: first_language_id + index for index, code in enumerate(codes)}
            vocabulary_size = first_language_id + len(codes) + (not is_m2m)  # mBART-50 ends with <mask>
        else:
            self.language_codes = language_codes_of(added_tokens)
            vocabulary_size = first_language_id + len(added_tokens) - len(FIRST_TOKENS)
        self.vocabulary_sizes = vocabulary_size, vocabulary_size
        self._tokens = {token_id: token for token, token_id in self._ids.items()}
        self.unknown_id: int | None = self._ids[UNKNOWN_TOKEN]
        self.end_id = self._ids[END]
        special_ids = {self._ids[token] for token in (BEGIN, PAD, END)}
        self.special_ids = frozenset({*special_ids, *range(first_language_id, vocabulary_size)})
        default_language = None if added_tokens else "en_XX" if language_set == "mbart50" else "en"
        self.source_language: str | None = config.get("src_lang") or default_language
        self.ends_with_language = bool(added_tokens and config.get("legacy_behaviour"))
        self.cleans_up = bool(config.get("clean_up_tokenization_spaces"))
        self.for_pair = partial(pair_tokenizer, self)

    @property
    def target_texts(self) -> dict[int, str]:
        """The texts of target tokens that are not special."""
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


def nllb_tokenizer(folder: str) -> FairseqTokenizer | None:
    """Read an NLLB-200's pieces instead of its tokenizer.json: in a third of the time and half of the memory.

    `None`: a tokenizer of another family, or a tokenizer.json with tokens that these pieces and languages lack.
    """
    if not str(read_tokenizer_config(folder).get("tokenizer_class")).startswith("Nllb"):
        return None
    head = read_file(os.path.join(folder, TOKENIZER_FILE)).partition(b'"normalizer"')[0]
    match = re.search(rb'"added_tokens"\s*:\s*(\[.*\])', head, re.DOTALL)
    try:
        added_tokens = {token["content"]: token["id"] for token in json.loads(match[1])} if match else {}
    except (ValueError, TypeError, KeyError, RecursionError):  # `tokenizers` says what is wrong
        return None
    tokenizer = FairseqTokenizer(folder, added_tokens)
    size = tokenizer.vocabulary_sizes[0]
    expected_ids = [*range(len(FIRST_TOKENS)), *range(size - len(added_tokens) + len(FIRST_TOKENS), size)]
    begins = list(added_tokens)[: len(FIRST_TOKENS)] == [*FIRST_TOKENS]
    return tokenizer if begins and [*added_tokens.values()] == expected_ids else None


def _vocabulary(file: str) -> Mapping[str, int]:
    """Read the id of each piece; n pieces have the ids 0 to n - 1."""
    vocabulary = read_json(file)
    if sorted(vocabulary.values(), key=str) != sorted(range(len(vocabulary)), key=str):
        raise CheckpointError(f"{file}: the ids of tokens must be 0 to {len(vocabulary) - 1}, each once")
    for token in (BEGIN, PAD, END, UNKNOWN_TOKEN):
        if token not in vocabulary:
            raise CheckpointError(f"{file}: lacks the token {shown(token)}")
    return vocabulary
