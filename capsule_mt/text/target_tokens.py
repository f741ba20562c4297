"""The tokens by which a multilingual OPUS-MT model is told the target language, such as ">>deu<<"."""

from collections.abc import Sequence
from typing import NoReturn

from capsule_mt.messages import LineError, shown

LANGUAGE_CODE = r"[a-z]{2,3}(?:[_-][A-Za-z0-9]+)*"  # other text between ">>" and "<<" may be a quotation
MAX_LISTED, MAX_SHOWN = 40, 20  # languages in an error, and characters of each


def codes_in(tokens: Sequence[str]) -> list[str]:
    """Return the codes of the languages of tokens."""
    return [token[2:-2] for token in tokens]


def refuse_missing_target(tokens: Sequence[str]) -> NoReturn:
    raise ValueError(
        f"`tgt_lang` must be one of {_listed(codes_in(tokens))}; it is missing, and the text does not begin with a "
        f"token such as {tokens[0][:MAX_SHOWN]}"
    )


def refuse_unknown_target(language: str, tokens: Sequence[str]) -> NoReturn:
    """Refuse a `tgt_lang`, or a token at the beginning of a text."""
    if language.startswith(">>"):
        raise LineError(
            f"the model lacks the token {language[:MAX_SHOWN]}, with which a text begins; it has {_listed(tokens)}"
        )
    raise ValueError(f"`tgt_lang` must be one of {_listed(codes_in(tokens))}; got {shown(language)}")


def _listed(names: Sequence[str]) -> str:
    hidden = len(names) - MAX_LISTED
    return ", ".join(name[:MAX_SHOWN] for name in names[:MAX_LISTED]) + (f" and {hidden} more" if hidden > 0 else "")
