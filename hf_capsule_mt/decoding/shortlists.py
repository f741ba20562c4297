"""Make the shortlist of a checkpoint from parallel text, as `capsule-mt shortlist` describes it."""

from collections import Counter
from typing import Any

from tqdm import tqdm

from capsule_mt.coverage.calibration.word_alignment import AlignerSettings, WordAligner
from capsule_mt.models.shortlist import Shortlist
from hf_capsule_mt.decoding.transformers_tokenizer import language_code

LONGEST = 100  # tokens of a sentence that the aligner reads
MOST_PAIRS = 100_000  # more teach a table of words little, and take memory
# each direction alone, without a sparse prior: an extra translation costs little, a missing one costs a word
SETTINGS = AlignerSettings(model1_iterations=5, hmm_iterations=0, agreement=False, concentration=0.5)


def make_shortlist(
    pairs: list[tuple[list[int], list[int]]], vocabularies: tuple[int, int], *, best: int, frequent: int
) -> Shortlist:
    """Align pairs of token ids, and take the `best` translations of each token and the `frequent` target tokens."""
    short = [pair for pair in pairs if 0 < len(pair[0]) <= LONGEST and 0 < len(pair[1]) <= LONGEST]
    if not short:
        raise ValueError(f"none of the {len(pairs)} pairs has 1 to {LONGEST} tokens on both sides")
    sample = short[:: -(-len(short) // MOST_PAIRS)]
    numerals = [([str(token) for token in source], [str(token) for token in target]) for source, target in sample]
    with tqdm(total=SETTINGS.model1_iterations + SETTINGS.hmm_iterations, unit=" passes") as bar:
        aligner = WordAligner(SETTINGS, stem=str).fit(numerals, lambda message: bar.update() and None)
    translations = {
        int(source): [int(target) for target in targets] for source, targets in aligner.translations(best).items()
    }
    counts = Counter(token for _, target in pairs for token in target)
    most_frequent = [token for token, _ in counts.most_common(frequent)]
    return Shortlist.of_translations(translations, most_frequent, vocabularies)


def token_pairs(
    tokenizer: Any, sources: list[str], targets: list[str], **languages: str | None
) -> list[tuple[list[int], list[int]]]:
    """Return the token ids of each source and of its target.

    languages: `src_lang` and `tgt_lang`, for tokenizers of many languages.
    """
    for argument, language in languages.items():
        if hasattr(tokenizer, argument):
            code = language_code(tokenizer, argument, language) or getattr(tokenizer, argument)
            if code is None:
                raise ValueError(f"a model of many languages needs `{argument}`")
            setattr(tokenizer, argument, code)
    encoded = tokenizer(sources, verbose=False)["input_ids"]
    return list(zip(encoded, tokenizer(text_target=targets, verbose=False)["input_ids"], strict=True))
