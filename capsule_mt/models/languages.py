"""The languages of one model for many: their codes, and the tokenizer of a direction."""

import re
from collections.abc import Collection, Mapping, Sequence

from capsule_mt.messages import shown
from capsule_mt.text.languages import LANGUAGES, TRADITIONAL_CHINESE, TWO_LETTER_CODES
from capsule_mt.text.target_tokens import codes_in, refuse_missing_target, refuse_unknown_target
from capsule_mt.text.tokenizer_protocol import Encoded

# tokens of languages: "deu_Latn" of NLLB, "__de__" of M2M100, "de_DE" of mBART
LANGUAGE_TOKEN = r"[a-z]{3}_[A-Z][a-z]{3}|__[a-z]{2,3}__|[a-z]{2}_[A-Z]{2}"
# the script that a language without one has, where a model knows several
DEFAULT_SCRIPTS = {"zh": "hans", "ks": "arab", "kr": "latn"}
CHINESE_SCRIPTS = {"cn": "hans", "sg": "hans", **dict.fromkeys(TRADITIONAL_CHINESE, "hant")}  # by country or script
NUM_EXAMPLES = 5
# codes of three letters that OPUS-MT has and NLLB-200 lacks: of macrolanguages, and of further languages
OPUS_CODES = dict(
    pair.split(":")
    for pair in """
    abk:ab ara:ar arg:an ava:av aym:ay aze:az bih:bh bis:bi bre:br cha:ch che:ce chv:cv cor:kw cos:co cre:cr div:dv
    fao:fo fas:fa fry:fy ful:ff glv:gv her:hz ido:io iku:iu ile:ie ina:ia ipk:ik kal:kl kau:kr kom:kv kua:kj lat:la
    lav:lv mah:mh mlg:mg mon:mn msa:ms nau:na nav:nv nbl:nr nde:nd ndo:ng nep:ne nor:no oji:oj ori:or orm:om oss:os
    pli:pi pus:ps que:qu roh:rm sme:se sqi:sq swa:sw tah:ty ton:to uzb:uz ven:ve vol:vo wln:wa yid:yi zha:za
    """.split()  # noqa: SIM905
)


class ManyLanguages:
    """A tokenizer of many languages, without the token that names one.

    language_codes: the token id of each language code, without the underscores around M2M100's; empty for a tokenizer
        without languages.
    source_language: the code of sources that name none, if the checkpoint has one.
    ends_with_language: whether the source's language follows the text instead of preceding it.
    """

    language_codes: Mapping[str, int]
    source_language: str | None
    ends_with_language: bool
    end_id: int
    unknown_id: int | None
    special_ids: frozenset[int]

    @property
    def byte_ids(self) -> frozenset[int]:
        """The ids of bytes for sources: see `Tokenizer` of `capsule_mt.text.tokenizer_protocol`."""
        raise NotImplementedError

    @property
    def target_byte_ids(self) -> frozenset[int]:
        """The ids of bytes for translations."""
        raise NotImplementedError

    @property
    def target_texts(self) -> Mapping[int, str]:
        """The texts of target tokens that are not special."""
        raise NotImplementedError

    def encode_text(self, text: str) -> Encoded:
        """Encode a text without special tokens."""
        raise NotImplementedError

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of a translation, without special tokens."""
        raise NotImplementedError

    def code_among(self, *ids: int | None) -> str | None:
        """Return the code of the language that one of these tokens names; `None` if none does."""
        return next((code for code, index in self.language_codes.items() if index in ids), None)

    def for_pair(self, source: str | None, target: str | None, start: int | None = None) -> "PairTokenizer":
        """Return the tokenizer from one language to another; codes may be another model's, such as "de".

        start: the token that the decoder starts with: of mBART, that of its only target language.
        """
        source_code = code_of("src_lang", source or self.source_language, self.language_codes)
        target_code, only_target = code_of("tgt_lang", target, self.language_codes), self.code_among(start)
        if only_target not in (target_code, None):
            raise ValueError(
                f"`tgt_lang` must be {only_target}, the language of the checkpoint's `decoder_start_token_id`, "
                f"got {shown(target)}"
            )
        return PairTokenizer(self, source_code, target_code, start)


def many_languages(tokenizer: object) -> ManyLanguages | None:
    """Return a tokenizer that has languages; `None` for others. OPUS-MT's have only tokens of target languages."""
    return tokenizer if isinstance(tokenizer, ManyLanguages) and tokenizer.language_codes else None


def language_codes_of(special_tokens: Mapping[str, int]) -> dict[str, int]:
    """Return the language codes among special tokens, with their ids."""
    return {
        token.strip("_"): index
        for token, index in special_tokens.items()
        if re.fullmatch(LANGUAGE_TOKEN, token) is not None
    }


class PairTokenizer:
    """A tokenizer of many languages from one to another: see `capsule_mt.text.tokenizer_protocol.Tokenizer`.

    first_ids: the token that names the target language, with which every translation begins; empty if the decoder
        starts with it.
    """

    language_tokens: Sequence[str] = ()

    def __init__(self, tokenizer: ManyLanguages, source: str, target: str, start: int | None) -> None:
        self._tokenizer = tokenizer
        self._source_id, target_id = (tokenizer.language_codes[code] for code in (source, target))
        self.first_ids = [] if target_id == start else [target_id]
        self.unknown_id, self.special_ids = tokenizer.unknown_id, tokenizer.special_ids

    @property
    def byte_ids(self) -> frozenset[int]:
        return self._tokenizer.byte_ids

    @property
    def target_byte_ids(self) -> frozenset[int]:
        return self._tokenizer.target_byte_ids

    def encode(self, text: str) -> Encoded:
        ids, offsets, _ = self._tokenizer.encode_text(text)
        if self._tokenizer.ends_with_language:
            return Encoded([*ids, self._tokenizer.end_id, self._source_id], [*offsets, None, None])
        return Encoded([self._source_id, *ids, self._tokenizer.end_id], [None, *offsets, None])

    def encode_target(self, text: str) -> list[int]:
        return [*self.first_ids, *self._tokenizer.encode_text(text).ids, self._tokenizer.end_id]

    def decode(self, ids: Sequence[int]) -> str:
        return self._tokenizer.decode(ids)


def code_of(argument: str, language: str | None, codes: Collection[str]) -> str:
    """Return the code among `codes` that a language has, which may be named by another model's: "de" or "deu_Latn".

    argument: the name for errors.
    """
    same_language = codes_of_language(language or "", codes)
    matches = matching_codes(language or "", same_language)
    if len(matches) == 1:
        return matches[0]
    near = same_language or _similar(language or "", codes)
    examples = ", ".join(near[:NUM_EXAMPLES]) + (", ..." if len(near) > NUM_EXAMPLES else "")
    accepted = "one of" if len(matches) > 1 else "one of the model's languages, such as"
    flag = f"--{argument.replace('_', '-')}{f' {near[0]}' if near else ''}"
    actual = f"it is missing (`{flag}`)" if language is None else f"got {shown(language)}"
    raise ValueError(f"`{argument}` must be {accepted} {examples}; {actual}")


def codes_of_language(language: str, codes: Collection[str]) -> list[str]:
    """Return the codes of a language, in any script or country; only `language` if it is one of them."""
    if language in codes:
        return [language]
    first, _ = language_and_region(language)
    return [code for code in codes if first and language_and_region(code)[0] == first]


def matching_codes(language: str, same_language: Sequence[str]) -> list[str]:
    """Return which codes of a language agree with its script or country; without one, prefer the usual code."""
    if [language] == same_language:
        return same_language
    first, region = language_and_region(language)
    matches = [code for code in same_language if _agree(language_and_region(code)[1], region)]
    for preferred_region in (region, region or DEFAULT_SCRIPTS.get(first)):
        matches = [code for code in matches if language_and_region(code)[1] == preferred_region] or matches
    return [code for code in matches if code == language.replace("-", "_")] or matches


def target_code_of(language: str | None, tokens: Sequence[str]) -> str:
    """Return the code of a target language in OPUS-MT's tokens; it may be named by another code, or by its token."""
    if language is None:
        refuse_missing_target(tokens)
    code = language[2:-2] if language.startswith(">>") and language.endswith("<<") else language
    matches = matching_codes(code, codes_of_language(code, codes_in(tokens)))
    if len(matches) != 1:
        refuse_unknown_target(code, [f">>{match}<<" for match in matches] or tokens)
    return matches[0]


def _similar(text: str, codes: Collection[str]) -> list[str]:
    """Return the codes of languages with a name like a text, such as "Serbain"; else similar codes, or all."""
    from difflib import get_close_matches  # late: for errors

    codes_of_names = {name.lower(): code for code, name in LANGUAGES.items()}
    names = get_close_matches(text.lower(), codes_of_names, NUM_EXAMPLES, 0.85)
    named = {codes_of_names[name] for name in names}
    same_name = [code for code in codes if language_and_region(code)[0] in named]
    return same_name or get_close_matches(text, codes, NUM_EXAMPLES, 0.5) or list(codes)


def _agree(region: str, other_region: str) -> bool:
    """Return whether codes of one language may mean the same: a country does not tell a script, and "XX" nothing."""
    if region == other_region or "" in (region, other_region):
        return True
    lengths = sorted((len(region), len(other_region)))
    return lengths == [2, 4] or (lengths == [2, 2] and "xx" in (region, other_region))


def language_and_region(language: str) -> tuple[str, str]:
    """Return the language of a code, in two letters if possible, and its script or country, in lower case."""
    first, _, region = language.strip("_").lower().replace("-", "_").partition("_")
    first = TWO_LETTER_CODES.get(first) or OPUS_CODES.get(first, first)
    return first, CHINESE_SCRIPTS.get(region, region) if first == "zh" else region
