"""The tokens by which a multilingual OPUS-MT model is told the target language, such as ">>deu<<"."""

from collections.abc import Sequence
from typing import NoReturn

from capsule_mt.messages import LineError

LANGUAGE_CODE = r"[a-z]{2,3}(?:[_-][A-Za-z0-9]+)*"  # other text between ">>" and "<<" may be a quotation
MAX_LISTED = 40  # languages in an error


def codes_in(tokens: Sequence[str]) -> list[str]:
    """Return the codes of the languages of tokens."""
    return [token[2:-2] for token in tokens]


def refuse_missing_target(tokens: Sequence[str]) -> NoReturn:
    raise ValueError(
        f"`tgt_lang` must be one of {_listed(codes_in(tokens))}; it is missing, and the text does not begin with a "
        f"token such as {tokens[0]}"
    )


def refuse_unknown_target(language: str, tokens: Sequence[str]) -> NoReturn:
    """Refuse a `tgt_lang`, or a token at the beginning of a text."""
    if language.startswith(">>"):
        raise LineError(f"the model lacks the token {language}, with which a text begins; it has {_listed(tokens)}")
    raise ValueError(f"`tgt_lang` must be one of {_listed(codes_in(tokens))}; got {language!r}")


def _listed(names: Sequence[str]) -> str:
    hidden = len(names) - MAX_LISTED
    return ", ".join(names[:MAX_LISTED]) + (f" and {hidden} more" if hidden > 0 else "")
