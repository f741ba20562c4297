"""Calibrate the coverage of a checkpoint, so that its shares are probabilities.

    capsule-mt calibrate outputs/gdr dev.en dev.de --align-with train.en train.de
    capsule-mt calibrate Helsinki-NLP/opus-mt-de-en dev.de dev.en --align-with train.de train.en --output outputs/opus
    capsule-mt calibrate checkpoints/capsule-marian-de-en dev.de dev.en --align-with train.de train.en \\
        --reverse checkpoints/capsule-marian-en-de

From each reference 0, 1, 2 and half of the content words are dropped, with the help of a word aligner, and the
checkpoint says what is left. Two curves are fitted: from what it says of a word to the probability that the word is
translated, and from their mean to the share of the content words that is; and the probability below which a word is
marked. For the method "attention", the head of the decoder that tells the missing words best is chosen first, if one
tells them at all. Words that are often missing in whole references, such as the German "sich", are optional: coverage
does not count them; the 50 most frequent words count only where they are marked. The checkpoint's config.json keeps
all of it, or coverage_calibration.json in a folder of Marian's, and coverage uses it wherever the checkpoint is
loaded. With --reverse, a model of the other direction verifies the marks, and the score also counts how short a
translation is, by what the text teaches of the length of each word's translation. Words of references that it often doubts
become optional, too, and those of translations that it finds without support need none. The marks of each operating
point are measured on the model's own translations, labelled in a sheet or by the aligner (which counts mistranslated
words as left out), and the score is chosen below which a sentence is an alarm. The coverage of another part of the
same text is printed as a check. Use text that the model was not trained on; the aligner needs more text than that.
"""

import argparse
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, get_args

from capsule_mt.commands.console import CommandParser, add_languages, positive
from capsule_mt.coverage.results import CoveredBy
from capsule_mt.models.from_marian import CALIBRATION_FILE
from capsule_mt.models.loading import CONFIG_FILE, is_marian
from capsule_mt.models.shortlist import FILE_NAME as SHORTLIST
from capsule_mt.text.outputs import check_output_folder, write_output
from hf_capsule_mt.commands.arguments import checkpoint, task_of


def parse_arguments() -> argparse.Namespace:
    parser = CommandParser(description=__doc__)
    parser.add_argument("checkpoint", type=_model, help="any sequence-to-sequence checkpoint, or a folder of Marian's")
    parser.add_argument("source", type=Path, help="text that the model was not trained on, a sentence a line")
    parser.add_argument("target", type=Path, help="its translation")
    parser.add_argument(
        "--align-with", type=Path, nargs=2, metavar=("SOURCE", "TARGET"), help="more text for the aligner"
    )
    parser.add_argument(
        "--method", choices=get_args(CoveredBy), nargs="+", help="what to calibrate (default: what the model has)"
    )
    parser.add_argument("--sentences", type=positive, default=500, help="how many sentences of the text to use")
    parser.add_argument(
        "--reverse", metavar="MODEL", help="a model of the other direction: calibrate `verified` with it"
    )
    parser.add_argument(
        "--labelled",
        type=Path,
        metavar="SHEET",
        help="own translations of lines of the text, read by hand, as TSV: line (from 1), translation, left out",
    )
    add_languages(parser)
    parser.add_argument("--output", type=Path, help="folder for the calibrated checkpoint (default: in place)")
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments()
    if arguments.output is None and not Path(arguments.checkpoint).is_dir():
        raise ValueError(f"{arguments.checkpoint} is no folder on this machine; `--output` names one for the result")
    if arguments.output is not None:
        check_output_folder(arguments.output)
    with _for_transformers(arguments.checkpoint) as model, _for_transformers(arguments.reverse) as reverse:
        _calibrate(arguments, model, reverse)


def _calibrate(arguments: argparse.Namespace, model: str, reverse: str | None) -> None:
    """Calibrate a checkpoint of transformers and write what is found."""
    from hf_capsule_mt.decoding.calibrating import NoHeadError, calibrate, check, examples_of, methods_of
    from hf_capsule_mt.decoding.translator import Translator
    from hf_capsule_mt.decoding.verifying import measure

    translator = Translator.from_pretrained(model, task=task_of(arguments), reverse=reverse)
    methods = arguments.method or methods_of(translator)
    examples = examples_of(arguments.source, arguments.target, arguments.align_with, arguments.sentences)
    old = getattr(translator.model.config, "coverage_calibration", None) or {}
    if set(old) <= {*methods, "optional_words", "function_words", "support", "length"}:  # every curve is fitted anew
        translator.model.config.coverage_calibration = None
    for method in methods:
        try:
            calibrate(translator, examples, method)
        except NoHeadError as error:
            if arguments.method:
                raise
            print(error)
        else:
            check(translator, examples.checked, method)
            if method == "verified":
                measure(translator, examples, arguments.labelled)
    folder, found = arguments.output or Path(arguments.checkpoint), translator.model.config.coverage_calibration
    if is_marian(arguments.checkpoint):
        if folder.resolve() != Path(arguments.checkpoint).resolve():
            shutil.copytree(arguments.checkpoint, folder, dirs_exist_ok=True)
        _write_json(folder / CALIBRATION_FILE, found)
        print(f"\n{folder / CALIBRATION_FILE}")
        return
    if arguments.output is not None:
        translator.model.save_pretrained(folder)
        translator.tokenizer.save_pretrained(folder)
        shortlist = Path(arguments.checkpoint) / SHORTLIST
        if shortlist.is_file():
            shutil.copy(shortlist, folder)
    config = json.loads((folder / CONFIG_FILE).read_text(encoding="utf-8"))
    _write_json(folder / CONFIG_FILE, {**config, "coverage_calibration": found})
    print(f"\n{folder / CONFIG_FILE}: `coverage_calibration`")


def _model(text: str) -> str:
    """An `argparse` type: a folder of Marian's, or what `checkpoint` takes."""
    try:
        return text if is_marian(text) else checkpoint(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


@contextmanager
def _for_transformers(model: str | None) -> Iterator[Any]:
    """Give a model that transformers loads: where it is Marian's, a copy in a folder of the same name."""
    if model is None or not is_marian(model):
        yield model
        return
    from capsule_mt.models.to_huggingface import write_huggingface  # late: the help needs no tokenizers

    with TemporaryDirectory(ignore_cleanup_errors=True) as folder:  # Windows keeps files that are still mapped
        copy = Path(folder, Path(model).resolve().name)
        write_huggingface(model, copy)
        yield str(copy)


def _write_json(file: Path, content: dict[str, Any]) -> None:
    write_output(file, json.dumps(content, indent=2, sort_keys=True) + "\n")
