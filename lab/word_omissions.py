"""How well a checkpoint finds the words that a translation left out, by each method and by length alone.

    python -m lab.word_omissions outputs/gdr test.de test.en --align-with train.de train.en
    python -m lab.word_omissions outputs/gdr test.de test.en --align-with train.de train.en \\
        --sentences 2116 --num-beams 1 5 --output outputs/word-omissions-de-en.json

Words are judged in two kinds of translations: references from which 0, 1, 2 or half of the content words were dropped,
and the checkpoint's own translations, greedy and by beam search. Content words are not among the 50 most frequent. In
its own, one is left out if the word aligner links it in the reference and to nothing in the translation. Measured are
the area under the ROC curve of words, and of sentences with and without an omission; the precision of the lowest-
ranked words at a recall of 0.6; and the time beside plain translation, in turns. The length ratio gives every word of
a sentence the same score. Intervals are 95 % by bootstrap over sentences.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from tqdm import tqdm

from capsule_mt import Coverage, CoverageOptions
from capsule_mt.commands.console import HelpFormatter, checkpoint_folder, positive, run
from capsule_mt.coverage.calibration.omissions import WithOmissions, drop_words, function_words, omissions_of
from capsule_mt.coverage.calibration.word_alignment import fit_aligner
from capsule_mt.coverage.names import METHODS
from capsule_mt.files.reading import read_parallel
from hf_capsule_mt.decoding.translator import Translator
from hf_capsule_mt.evaluation import write_result
from hf_capsule_mt.evaluation.results import markdown_table
from lab.area_under_curve import Judged, judge, measures

WINDOW = 128


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=HelpFormatter)
    parser.add_argument("checkpoint", type=checkpoint_folder, help="any sequence-to-sequence checkpoint")
    parser.add_argument("source", type=Path, help="held-out text, one sentence a line")
    parser.add_argument("target", type=Path, help="its reference")
    parser.add_argument(
        "--align-with", type=Path, nargs=2, metavar=("SOURCE", "TARGET"), help="more text for the aligner"
    )
    parser.add_argument("--sentences", type=positive, default=500, help="spread over the text")
    parser.add_argument("--method", choices=METHODS[1:], nargs="+", help="(default: what the model has)")
    parser.add_argument("--num-beams", type=positive, nargs="*", default=[1, 5], help="of its own translations")
    parser.add_argument("--bootstrap", type=positive, default=1000, help="samples for the 95 %% intervals")
    parser.add_argument("--output", type=Path, default=Path("outputs/word-omissions.json"), help="the result file")
    return parser.parse_args()


def in_windows(title: str, number: int, work: Callable[[slice], Sequence[Any]]) -> tuple[list[Any], float]:
    """Return what `work` gives for each window, with a progress bar, and the seconds that it took."""
    pairs: list[Any] = []
    start = time.perf_counter()
    for first in tqdm(range(0, number, WINDOW), desc=title, unit=" windows"):
        pairs += work(slice(first, first + WINDOW))
    return pairs, time.perf_counter() - start


def measures_by_method(
    translator: Translator, methods: Sequence[str], kind: str, examples: Sequence[WithOmissions], samples: int
) -> dict[str, Any]:
    """Return how well each method finds what these translations leave out, and so does their length."""
    results: dict[str, Any] = {}
    judged: list[Judged] = []
    for method in methods:
        options = CoverageOptions(method=method)  # type: ignore[arg-type]

        def cover(part: slice, options: CoverageOptions = options) -> list[Coverage]:
            sources, translations = (
                [getattr(example, side) for example in examples[part]] for side in ("source", "translation")
            )
            return translator.cover(sources, translations, coverage=options)

        coverages, _ = in_windows(f"{kind}: {method}", len(examples), cover)
        judged = [judge(*pair) for pair in zip(examples, coverages, strict=True)]
        results[method] = measures(judged, samples)
    by_length = [
        coverage.by_length(len(example.translation) / len(example.source))
        for coverage, example in zip(judged, examples, strict=True)
    ]
    return results | {"length ratio": measures(by_length, samples)}


def main() -> None:
    arguments = parse_arguments()
    text = list(zip(*read_parallel([arguments.source, arguments.target]), strict=True))
    number = min(arguments.sentences, len(text))
    sources, references = map(list, zip(*(text[n * len(text) // number] for n in range(number)), strict=True))
    translator = Translator.from_pretrained(arguments.checkpoint)
    model, methods = translator.model, ["deletion"]
    if "attention" in (getattr(model.config, "coverage_calibration", None) or {}):
        methods.insert(0, "attention")
        if translator.has_reverse:
            methods.insert(0, "verified")
    methods = arguments.method or methods

    def translate(part: slice, **options: Any) -> list[Any]:
        return translator(sources[part], batch_size=32, split_sentences=False, scores=False, **options)

    translations_by_search = {}
    for beams in arguments.num_beams:
        work = partial(translate, num_beams=beams)
        translations_by_search[beams], _ = in_windows(f"Translating, {beams} beams", len(sources), work)
    texts = [translation.text for translations in translations_by_search.values() for translation in translations]
    aligner = fit_aligner(
        sources + sources * len(translations_by_search),
        references + texts,
        extra_files=arguments.align_with,
        progress=lambda step: print(f"Aligner: {step}"),
    )
    frequent = function_words([source for source, _ in text], extra_files=arguments.align_with)
    reference_links = aligner.align_lines(sources, references)
    kinds = {"references with words dropped": drop_words(sources, references, reference_links, frequent=frequent)}
    for beams, by_search in translations_by_search.items():
        own_texts = [translation.text for translation in by_search]
        links = aligner.align_lines(sources, own_texts)
        kinds["own, greedy" if beams == 1 else f"own, {beams} beams"] = omissions_of(
            sources, own_texts, reference_links, links, frequent
        )

    results = {
        kind: measures_by_method(translator, methods, kind, examples, arguments.bootstrap)
        for kind, examples in kinds.items()
    }
    times = {}
    for method in methods if arguments.num_beams else []:
        plain = partial(translate, num_beams=arguments.num_beams[0])
        covering = partial(plain, coverage=CoverageOptions(method=method))  # type: ignore[arg-type]
        without, with_coverage = (
            in_windows(f"Timing {name}", len(sources), work)[1]
            for name, work in (("plain", plain), (method, covering))
        )
        times[method] = with_coverage / without

    rows = [
        [
            kind,
            method,
            *(_shown(found[name]) for name in ("word_auc", "precision", "sentence_auc")),
        ]
        for kind, by_method in results.items()
        for method, found in by_method.items()
    ]
    header = ["translations", "method", "word AUC", "precision at recall 0.6", "sentence AUC"]
    table = markdown_table(header, rows)
    shown = ", ".join(f"{method} {ratio:.2f}" for method, ratio in times.items())
    path = write_result(
        arguments.output,
        {
            "kind": "word omissions",
            "checkpoint": arguments.checkpoint.name,
            "sentences": len(sources),
            "bootstrap_samples": arguments.bootstrap,
            "is_calibrated": bool(getattr(model.config, "coverage_calibration", None)),
            "measures": results,
            "time_relative_to_translation": times,
        },
    )
    print(f"{table}\n\nTime beside plain translation: {shown}\nResult: {path}")


def _shown(value: dict[str, float] | None) -> str:
    return "-" if value is None else f"{value['value']:.3f} ({value['low']:.2f}-{value['high']:.2f})"


if __name__ == "__main__":
    run(main)
