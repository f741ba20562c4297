"""Does guided routing drop fewer sentences? Join short sentences, and count those that two models leave out.

    capsule-mt convert checkpoints/capsule-marian-de-en outputs/plain-de-en --from marian --set guided_routing=none
    python -m lab.dropped_sentences checkpoints/capsule-marian-de-en outputs/plain-de-en \
        --sources data/tatoeba-de-en/test.de.gz --targets data/tatoeba-de-en/test.en.gz

Only pairs count whose both sides end one sentence, so a translation lacks as many sentences as it has fewer ends.
"""

import argparse
import re
from pathlib import Path

import numpy as np

from capsule_mt import Translator
from capsule_mt.commands.console import HelpFormatter, run
from capsule_mt.files.reading import read_parallel

END = re.compile(r"[.!?…]+[\"”“’']*(?=\s|$)")


def dropped(translator: Translator, texts: list[str], joined: int) -> np.ndarray:
    """Return how many of the sentences of each text its translation lacks."""
    translations = translator(texts, batch_size=16, num_beams=4, split_sentences=False)
    return np.array([max(0, joined - len(END.findall(translation.text))) for translation in translations])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=HelpFormatter)
    parser.add_argument("models", nargs=2, metavar="MODEL", help="a checkpoint, and its twin to compare with")
    parser.add_argument("--sources", type=Path, required=True, help="one sentence a line")
    parser.add_argument("--targets", type=Path, required=True, help="their translations")
    parser.add_argument("--joined", type=int, default=3, help="sentences of a text (default: 3)")
    arguments = parser.parse_args()
    pairs = zip(*read_parallel([arguments.sources, arguments.targets]), strict=True)
    sentences = [source for source, target in pairs if len(END.findall(source)) == len(END.findall(target)) == 1]
    starts = range(0, len(sentences) - arguments.joined + 1, arguments.joined)
    texts = [" ".join(sentences[start : start + arguments.joined]) for start in starts]
    counts = [dropped(Translator.from_pretrained(model), texts, arguments.joined) for model in arguments.models]
    total = len(texts) * arguments.joined
    drawn = np.random.default_rng(1).integers(len(texts), size=(2000, len(texts)))
    low, high = np.quantile((counts[0] - counts[1])[drawn].sum(axis=1) / total, [0.025, 0.975])
    shares = [count.sum() / total for count in counts]
    print(f"of {total} sentences in {len(texts)} texts, dropped: {shares[0]:.2%} and {shares[1]:.2%}")
    print(f"difference: {shares[0] - shares[1]:+.2%} [{low:+.2%}, {high:+.2%}]")


if __name__ == "__main__":
    run(main)
