"""Find out what each source word may become, so that decoding scores a few hundred tokens and not the vocabulary.

    capsule-mt shortlist outputs/demo train.en train.de
    capsule-mt translate outputs/demo --shortlist --input text.en --output text.de

The text should be what the model was trained on. The word aligner learns from it which target tokens each source token
becomes; the shortlist has the most likely of them, and the most frequent tokens for every sentence. It is kept beside
the checkpoint, in shortlist.safetensors.
"""

import argparse
from collections import Counter
from pathlib import Path
from typing import Any

from tqdm import tqdm

import hf_capsule_mt  # noqa: F401  registers the models
from capsule_mt.commands.console import HelpFormatter, positive
from capsule_mt.models.shortlist import FILE_NAME, Shortlist
from capsule_mt.text.outputs import check_outputs
from capsule_mt.text.reading import read_parallel
from hf_capsule_mt.commands.arguments import checkpoint
from hf_capsule_mt.evaluation.word_alignment import AlignerSettings, WordAligner
from hf_capsule_mt.modeling.loading import load_checkpoint

LONGEST = 100  # tokens of a sentence that the aligner reads
MOST_PAIRS = 100_000  # more teach a table of words little, and take memory
# each direction alone, without a sparse prior: a translation too many costs little, one that is missing a word
SETTINGS = AlignerSettings(model1_iterations=5, hmm_iterations=0, agreement=False, concentration=0.5)


def make_shortlist(
    pairs: list[tuple[list[int], list[int]]], vocabularies: tuple[int, int], *, best: int, frequent: int
) -> Shortlist:
    """Align pairs of token ids, and take the `best` translations of each token and the `frequent` target tokens."""
    short = [pair for pair in pairs if 0 < len(pair[0]) <= LONGEST and 0 < len(pair[1]) <= LONGEST]
    if not short:
        raise ValueError(f"none of the {len(pairs)} pairs has 1 to {LONGEST} tokens on both sides")
    some = short[:: -(-len(short) // MOST_PAIRS)]
    numerals = [([str(token) for token in source], [str(token) for token in target]) for source, target in some]
    with tqdm(total=SETTINGS.model1_iterations + SETTINGS.hmm_iterations, unit=" passes") as bar:
        aligner = WordAligner(SETTINGS, stem=str).fit(numerals, lambda message: bar.update() and None)
    translations = {
        int(source): [int(target) for target in targets] for source, targets in aligner.translations(best).items()
    }
    counts = Counter(token for _, target in pairs for token in target)
    most_frequent = [token for token, _ in counts.most_common(frequent)]
    return Shortlist.of_translations(translations, most_frequent, vocabularies)


def token_pairs(tokenizer: Any, sources: list[str], targets: list[str]) -> list[tuple[list[int], list[int]]]:
    encoded = tokenizer(sources, verbose=False)["input_ids"]
    return list(zip(encoded, tokenizer(text_target=targets, verbose=False)["input_ids"], strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=HelpFormatter)
    parser.add_argument("model", type=checkpoint, help="a checkpoint")
    parser.add_argument("source", type=Path, help="source sentences, one a line")
    parser.add_argument("target", type=Path, help="their translations")
    parser.add_argument("--best", type=positive, default=100, help="translations of each source token")
    parser.add_argument("--frequent", type=positive, default=1000, help="target tokens for every translation")
    parser.add_argument("--output", type=Path, help="the file (default: shortlist.safetensors in the checkpoint)")
    arguments = parser.parse_args()
    output = arguments.output or Path(arguments.model) / FILE_NAME
    if not output.parent.is_dir():
        parser.error(f"{output.parent}: no such folder; --output names the file of a checkpoint on the hub")
    check_outputs([output], [arguments.source, arguments.target])
    sources, targets = read_parallel([arguments.source, arguments.target])
    if not sources:
        parser.error(f"{arguments.source}: no sentences")
    model, tokenizer = load_checkpoint(arguments.model)
    vocabularies = model.get_input_embeddings().num_embeddings, len(model.get_output_embeddings().weight)
    pairs = token_pairs(tokenizer, sources, targets)
    shortlist = make_shortlist(pairs, vocabularies, best=arguments.best, frequent=arguments.frequent)
    shortlist.save(output)
    sizes = [len(shortlist.of_source(source)) for source, _ in pairs[:1000]]
    print(f"{output}: {sum(sizes) / len(sizes):.0f} of {vocabularies[1]} tokens for a sentence, {len(pairs)} pairs")
