"""How unrelated a translation is to its text, and when that raises an alarm."""

import re
from collections.abc import Sequence

from capsule_mt.coverage.verified import ForcedPair, Reverse

# Texts and translations of up to this many characters, which people translate freely: "Paste" as "Cola". The limit was
# chosen on messages of Django, Nautilus and gedit, and on Tatoeba's even lines.
SHORT_TEXT = 12
ACCESS_KEY = re.compile(r"_(?=[^\W\d_])")  # of a menu, as in "_File"


def hallucinations(
    lines: Sequence[tuple[str, str]],
    forward: Sequence[float],
    reverse_pairs: Sequence[ForcedPair | None],
    model: Reverse,
    reverse: Reverse,
) -> list[float]:
    """Return the share of the information in each text and its translation that the other one does not predict.

    Models do not know which letter of a word may be an access key, so pairs with one are forced again without it.

    Args:
        lines: texts and their translations, neither blank.
        forward: the share of each translation's information that its text predicts.
        reverse_pairs: the reverse model's pass over each text, with its information.
        model, reverse: what computed these.
    """
    shares = [(share, _information(pair)) for share, pair in zip(forward, reverse_pairs, strict=True)]
    with_key = [index for index, line in enumerate(lines) if any(map(_has_access_key, line))]
    if with_key:
        texts, translations = ([without_access_key(lines[index][side]) for index in with_key] for side in (0, 1))
        forced_pairs = model.force(texts, translations, with_information=True)
        back_pairs = reverse.force(translations, texts, with_information=True)
        for index, pair, back_pair in zip(with_key, forced_pairs, back_pairs, strict=True):
            shares[index] = _information(pair), _information(back_pair)
    return [1 - (forward_share + backward_share) / 2 for forward_share, backward_share in shares]


def _information(pair: ForcedPair | None) -> float:
    return 0.0 if pair is None else pair.information or 0.0


def _has_access_key(text: str) -> bool:
    return text.count("_") == 1 and ACCESS_KEY.search(text) is not None


def without_access_key(text: str) -> str:
    """Return a text without the underscore before an access key; a text with several has none."""
    return ACCESS_KEY.sub("", text) if _has_access_key(text) else text


def raises_alarm(hallucination: float, alarm: float, text: str, translation: str) -> bool:
    """Whether a translation is perhaps of another text: for short texts, only halfway between the alarm and 1."""
    is_short = max(len(text.strip()), len(translation.strip())) <= SHORT_TEXT
    return hallucination > ((1 + alarm) / 2 if is_short else alarm)
