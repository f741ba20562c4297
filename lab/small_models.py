"""What `capsule-mt convert --to small` costs: sizes, BLEU beside int8, and the paired bootstrap, on held-out text.

    python -m lab.small_models firefox/en-pt --flores flores.en flores.pt --tatoeba tatoeba.en tatoeba.pt \\
        --output outputs/small-en-pt

Both files of a pair may end in .gz. Each second pair of a corpus is held out: the small checkpoint is calibrated on
253 sentences of FLORES and 247 of Tatoeba among the others, and only the held-out pairs are translated. All
translations are greedy, in int8, over the whole vocabulary. The checkpoint and results.json are written to the output.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from sacrebleu.metrics import BLEU
from sacrebleu.significance import PairedTest

from capsule_mt import Translator
from capsule_mt.coverage.calibration.rounding import MAX_LOSS, write_small
from capsule_mt.files.reading import read_parallel

NUM_CALIBRATED = {"flores": 253, "tatoeba": 247}
TATOEBA_STRIDE = 5  # among the pairs that are not held out: spreads the calibration over the whole corpus
Pair = tuple[str, str]  # source, reference


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("student", type=Path, help="the folder of a student of Firefox Translations, or any model")
    for corpus in NUM_CALIBRATED:
        parser.add_argument(f"--{corpus}", nargs=2, type=Path, required=True, metavar=("SOURCES", "REFERENCES"))
    parser.add_argument("--max-loss", type=float, default=MAX_LOSS, help="of a token, in nats: see `write_small`")
    parser.add_argument("--output", type=Path, required=True, help="a new folder")
    arguments = parser.parse_args()
    if arguments.output.exists():
        raise ValueError(f"{arguments.output}: exists; name a new folder")
    pairs = {corpus: list(zip(*read_parallel(getattr(arguments, corpus)), strict=True)) for corpus in NUM_CALIBRATED}
    small = arguments.output / "small"
    loss = write_small(arguments.student, small, calibration_text(pairs), max_loss=arguments.max_loss)
    results = {
        "loss": loss,
        "bytes": {"int8": largest_file(arguments.student), "small": largest_file(small)},
        "corpora": compare(arguments.student, small, {corpus: pairs[corpus][1::2] for corpus in pairs}),
    }
    (arguments.output / "results.json").write_text(json.dumps(results, indent=2) + "\n")
    print(json.dumps(results, indent=2))


def calibration_text(pairs: dict[str, list[Pair]]) -> list[str]:
    """Return the sources that calibrate: none of them is held out."""
    sources: list[str] = []
    for corpus, stride in (("flores", 1), ("tatoeba", TATOEBA_STRIDE)):
        sources += [source for source, _ in pairs[corpus][:: 2 * stride][: NUM_CALIBRATED[corpus]]]
    return sources


def largest_file(folder: Path) -> int:
    """Return the bytes of a model's weights, its largest file."""
    return max(file.stat().st_size for file in folder.iterdir())


def compare(student: Path, small: Path, held_out: dict[str, list[Pair]]) -> dict[str, dict[str, Any]]:
    """Return the BLEU of both models on each corpus, the p-value of its difference, and the share of equal texts."""
    translators = {"int8": Translator.from_pretrained(student, int8=True)}
    translators["small"] = Translator.from_pretrained(small, int8=True)
    results = {}
    for corpus, pairs in held_out.items():
        sources, references = [source for source, _ in pairs], [reference for _, reference in pairs]
        options: dict[str, Any] = {"num_beams": 1, "batch_size": 32, "scores": False, "split_sentences": False}
        outputs = {
            name: [translation.text for translation in translator(sources, **options)]
            for name, translator in translators.items()
        }
        metrics = {"BLEU": BLEU(references=[references])}
        _, scores = PairedTest(list(outputs.items()), metrics, references=None, test_type="bs")()
        int8, rounded = (score for score in scores["BLEU"] if not isinstance(score, str))
        results[corpus] = {
            "sentences": len(pairs),
            "int8": int8.score,
            "small": rounded.score,
            "p": rounded.p_value,
            "same": sum(map(str.__eq__, *outputs.values())) / len(pairs),
        }
    return results


if __name__ == "__main__":
    main()
