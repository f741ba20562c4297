"""Measure the error rate of the aligner or of a model against alignments made by hand.

    python -m lab.align --train train.en.gz train.fr.gz --expand-french \\
        --gold-text enfr.src-tgt --gold enfr.gold --output outputs/word-alignment-en-fr.json
    python -m lab.align --model outputs/en_fr --gold-text enfr.src-tgt --gold enfr.gold

The gold text has a pair on a line, split into words, with ||| between the sides; the gold links are counted from 1,
1-2 where they are sure and 1p2 where they are possible. The aligner also reads the text that it is to align, as is
usual: it learns from text alone, never from links. With `--model` the links are those that `Translation.alignment`
would have if the model had written the gold translations.
"""

import argparse
import re
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from capsule_mt import Translator
from capsule_mt.commands.console import HelpFormatter, checkpoint_folder, run
from capsule_mt.coverage.calibration.word_alignment import AlignerSettings, WordAligner
from capsule_mt.coverage.calibration.words import Links, split_words
from capsule_mt.files.reading import read_lines, read_parallel
from capsule_mt.translate.assembling import links_between
from capsule_mt.translate.options import TranslationOptions
from hf_capsule_mt.evaluation import write_result

# French contractions and elisions as the gold alignments of the Canadian Hansards write them
FRENCH_CONTRACTIONS: dict[str, tuple[str, ...]] = {
    "au": ("à", "le"),
    "aux": ("à", "les"),
    "du": ("de", "le"),
    "des": ("de", "les"),
    "c'": ("ce",),
    "d'": ("de",),
    "j'": ("je",),
    "jusqu'": ("jusque",),
    "l'": ("le",),
    "lorsqu'": ("lorsque",),
    "m'": ("me",),
    "n'": ("ne",),
    "puisqu'": ("puisque",),
    "qu'": ("que",),
    "quelqu'": ("quelque",),
    "s'": ("se",),
    "t'": ("te",),
}


def expand_french(words: list[str]) -> list[str]:
    """Write out French contractions and elisions: l' eau du lac -> le eau de le lac."""
    return [part for word in words for part in FRENCH_CONTRACTIONS.get(word.lower(), (word,))]


def alignment_error_rate(predicted: Sequence[Links], sure: Sequence[Links], possible: Sequence[Links]) -> float:
    """Return the AER of Och and Ney 2003 over all sentences.

    AER = 1 - (|A and S| + |A and P|) / (|A| + |S|),    S is part of P
    """
    hits = sum(len(a & s) + len(a & (s | p)) for a, s, p in zip(predicted, sure, possible, strict=True))
    size = sum(len(a) + len(s) for a, s in zip(predicted, sure, strict=True))
    if size == 0:
        raise ValueError("the alignment error rate needs at least one link, got none in `predicted` and `sure`")
    return 1.0 - hits / size


def read_gold_links(line: str) -> tuple[Links, Links]:
    """Return the sure links and all links of a line such as "1-1 2p3": counted from 1, "p" marks a possible link."""
    matches = re.findall(r"(\d+)([-p])(\d+)", line)
    if len(matches) != len(line.split()):
        raise ValueError(f"a line of gold links must be of links such as 1-1 or 2p3, got {line!r}")
    links = [(mark, (int(source) - 1, int(target) - 1)) for source, mark, target in matches]
    return frozenset(link for mark, link in links if mark == "-"), frozenset(link for _, link in links)


def links_by_model(translator: Translator, pairs: Sequence[tuple[list[str], list[str]]]) -> list[Links]:
    """Return the links of `Translation.alignment` for given translations, of texts that are split into words."""
    sources, targets = ([" ".join(words) for words in side] for side in zip(*pairs, strict=True))
    options = TranslationOptions(alignment=True, split_sentences=False, truncation=True, copy=False)
    plan = translator.plan(options)
    documents, scored = translator._pairs(sources, targets, plan.segmenter)
    decode, links = plan.tokenizer.decode, []
    for document, pair, words in zip(documents, scored, targets, strict=True):
        text = decode(pair[1].ids)
        if len(text.split()) != len(words.split()):
            raise ValueError(f"the tokenizer of {translator.loaded.name} changes the words of {words!r}: {text!r}")
        links.append(frozenset(links_between(document, [pair], [text], text, plan)))
    return links


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=HelpFormatter)
    parser.add_argument("--gold-text", type=Path, required=True, help="text that has been aligned by hand")
    parser.add_argument("--gold", type=Path, required=True, help="its links")
    parser.add_argument(
        "--train", type=Path, nargs=2, metavar=("SOURCE", "TARGET"), help="parallel text to learn from"
    )
    parser.add_argument("--model", type=checkpoint_folder, help="link by this model instead of the aligner")
    parser.add_argument("--expand-french", action="store_true", help="write du as de le, l' as le on the target side")
    parser.add_argument("--output", type=Path, default=Path("outputs/word-alignment.json"), help="the result file")
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments()
    settings = AlignerSettings()
    target_words = (lambda line: expand_french(split_words(line))) if arguments.expand_french else split_words
    training = [(split_words(s), target_words(t)) for s, t in zip(*read_parallel(arguments.train or []), strict=True)]
    training = [pair for pair in training if 0 < len(pair[0]) <= 50 and 0 < len(pair[1]) <= 50]
    sides = [line.split(" ||| ") for line in read_lines(arguments.gold_text)]
    pairs = [(source.split(), target.split()) for source, target in sides]
    start = time.perf_counter()
    if arguments.model:
        predicted = links_by_model(Translator.from_pretrained(arguments.model), pairs)
    else:
        predicted = WordAligner(settings).fit(training + pairs, print).align(pairs)
    seconds = time.perf_counter() - start
    sure, possible = zip(*(read_gold_links(line) for line in read_lines(arguments.gold)), strict=True)
    rate = alignment_error_rate(predicted, sure, possible)
    print(f"Alignment error rate: {rate:.4f}, {sum(map(len, predicted))} links, {seconds:.0f} seconds")
    result = {
        "kind": "word alignment",
        "alignment_error_rate": rate,
        "links": sum(map(len, predicted)),
        "sentences": len(pairs),
        "trained_on": {"files": [path.name for path in arguments.train or []], "pairs": len(training)},
        "aligner": arguments.model.name if arguments.model else asdict(settings),
        "seconds": seconds,
    }
    print(f"Result: {write_result(arguments.output, result)}")


if __name__ == "__main__":
    run(main)
