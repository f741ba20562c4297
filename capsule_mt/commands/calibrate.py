"""Calibrate the coverage of a model, so that its shares are probabilities.

    capsule-mt calibrate en-pt dev.en dev.pt --align-with train.en train.pt --reverse pt-en
    capsule-mt calibrate en-pt dev.en --reverse pt-en      # without reference translations
    capsule-mt calibrate outputs/gdr dev.en dev.de --align-with train.en train.de
    capsule-mt calibrate Helsinki-NLP/opus-mt-de-en dev.de dev.en --align-with train.de train.en
    capsule-mt calibrate checkpoints/capsule-marian-de-en dev.de dev.en --align-with train.de train.en \\
        --reverse checkpoints/capsule-marian-en-de

A word aligner links the words of sources and references. From each of up to --sentences references, it drops the
translations of 0, 1, 2 and half of the content words of its source. From what remains, it learns:

- for the method "attention", the attention head of the decoder that separates dropped from translated words best. If
  it does not separate them well enough, the model does not get this method;
- a curve from the attention that a word gets to the probability that the word is translated, and the probability
  below which a word is marked;
- a curve from the mean over the words to the score, which is the share of content words that are translated.

Words that complete references often leave out, such as the German "sich", are optional: coverage ignores them. Very
frequent words (up to 50) count only if they are marked. The result is written into the checkpoint's config.json; for a
folder of Marian or CTranslate2, and for a download, into a coverage.json in it.

With --reverse, a reverse model, which translates in the other direction, verifies the marks, and the score also counts
how short a translation is. If the reverse model often doubts a source word, the word becomes optional. If it often
finds a target word unsupported, the word no longer needs support. The scores of the model's own translations give the
alarm: a sentence with a lower score is flagged. As a check, the command prints the coverage of held-out sentences.

Use text that the model was not trained on, and give the aligner more text (--align-with). Without a reference, words
are dropped from the model's own translations of up to 10,000 lines.
"""

import argparse
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

from capsule_mt.catalog.entries import FACTS_FILE
from capsule_mt.commands.console import CommandParser, add_languages, positive
from capsule_mt.commands.loading import folders_of, load_translator
from capsule_mt.coverage.names import CoveredBy
from capsule_mt.files.lock import lock_output
from capsule_mt.files.outputs import check_output_folder, naming_errors, read_object, remove_partials, write_output
from capsule_mt.files.reading import open_text
from capsule_mt.models.loading import CONFIG_FILE, is_ctranslate2, refuse_adapter
from capsule_mt.models.shipped import CALIBRATION_FILE, OLD_CALIBRATION_FILE, calibration_beside

STATE_OF_TRAINING = ".pt", ".pth"


def parse_arguments() -> argparse.Namespace:
    parser = CommandParser(description=__doc__)
    parser.add_argument("model", help="the folder of a model, or a name such as en-pt")
    parser.add_argument("source", type=Path, help="text that the model was not trained on, one sentence a line")
    parser.add_argument(
        "target",
        type=Path,
        nargs="?",
        help="its reference translation (default: the model's own translation)",
    )
    parser.add_argument(
        "--align-with",
        type=Path,
        nargs=2,
        metavar=("SOURCE", "TARGET"),
        help="more parallel text for the word aligner",
    )
    parser.add_argument(
        "--method",
        choices=get_args(CoveredBy),
        nargs="+",
        help="the methods to calibrate (default: those that the model supports)",
    )
    parser.add_argument("--sentences", type=positive, default=500, help="the number of sentences to use")
    parser.add_argument(
        "--reverse",
        metavar="MODEL",
        help="a reverse model, to calibrate the method verified (default: the one that the calibration names, if it "
        "is there)",
    )
    add_languages(parser)
    parser.add_argument("--output", type=Path, help="folder for the calibrated model (default: in place)")
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments()
    refuse_adapter(arguments.model)  # it takes its configuration from the model beside it
    if arguments.output is not None:
        check_output_folder(arguments.output)
    for file in (arguments.source, arguments.target, *(arguments.align_with or ())):
        if file is not None and not file.exists():
            open_text(file)  # raises before a model is downloaded
    translator = load_translator(arguments.model, {"reverse": arguments.reverse})
    folder = _folder_of(arguments)
    output = arguments.output or folder
    is_new = not output.exists()
    output.mkdir(parents=True, exist_ok=True)
    try:
        with lock_output(output), naming_errors(output):
            remove_partials(output)
            print(f"\n{_calibrate(translator, folder, arguments)}")
    except BaseException:
        if is_new and not any(output.iterdir()):
            output.rmdir()
        raise


def _calibrate(translator: Any, folder: Path, arguments: argparse.Namespace) -> str:
    """Calibrate the methods, print how well they work, and write the result; return the file and field."""
    from capsule_mt.coverage.calibration.calibrating import NoHeadError, calibrate, check, examples_of, methods_of
    from capsule_mt.coverage.calibration.verifying import measure

    translator.languages = (arguments.src_lang, arguments.tgt_lang)
    methods = arguments.method or methods_of(translator)
    prepare_reverse(translator, methods, arguments)
    examples = examples_of(translator, arguments.source, arguments.target, arguments.align_with, arguments.sentences)
    original_head = translator.calibration.head
    if set(translator.loaded.calibration) <= {*methods, "optional_words", "function_words", "support", "length"}:
        translator.set_calibration({})  # all of it is fitted anew
    for method in methods:
        if method == "verified" and not arguments.method and translator.calibration.head is None:
            print("verified: not calibrated, as it needs the head of attention")
            continue
        try:
            calibrate(translator, examples, method)
        except NoHeadError as error:
            if arguments.method:
                raise
            if original_head is not None:
                layer, head = original_head
                raise NoHeadError(
                    f"{error}; the calibration with layer {layer}, head {head}, stays as it was: calibrate on more "
                    "text, also by `--align-with`, or name other methods by `--method`"
                ) from None
            print(error)
        else:
            check(translator, examples.checked, method)
            if method == "verified":
                measure(translator, examples)
    return _write_calibration(translator, folder, arguments.output or folder)


def prepare_reverse(translator: Any, methods: Sequence[str], arguments: argparse.Namespace) -> None:
    """Load the reverse model while the calibration, which may name it, is still there.

    Raises:
        ValueError: `--method verified` without such a model.
    """
    if "verified" in methods:
        if translator.reverse is None:
            raise ValueError(
                '--method verified needs a reverse model: name it by `--reverse MODEL`, or leave out "verified"'
            )
        if arguments.reverse is None:
            print(f"verified: by {translator.reverse.loaded.name}, the model that the calibration names")
    elif not arguments.method and "attention" in methods:
        print("verified: not calibrated, as it needs a reverse model: name it by `--reverse MODEL`")


def _folder_of(arguments: argparse.Namespace) -> Path:
    """Return the folder of the model; its name if it is in the cache of transformers."""
    folders = folders_of(arguments.model)
    if len(folders) > 1:
        raise ValueError(f"{arguments.model} goes through English by two models: calibrate each of them")
    if arguments.output is None and not Path(folders[0]).is_dir():
        raise ValueError(
            f"{arguments.model} is not a folder on this machine: name a folder for the result by --output"
        )
    return Path(folders[0])


def _write_calibration(translator: Any, folder: Path, output: Path) -> str:
    """Write the calibration into `output`, with the model if that is another folder; return the file and field."""
    if not folder.is_dir():
        translator.save_pretrained(output)
    elif output.resolve() != folder.resolve():
        output.mkdir(parents=True, exist_ok=True)
        for file in folder.iterdir():
            if file.is_file() and not file.name.endswith(STATE_OF_TRAINING):
                shutil.copy(file, output)
    calibration, config = dict(translator.loaded.calibration), output / CONFIG_FILE
    is_beside = is_ctranslate2(output) or Path(calibration_beside(str(output))).is_file() or _has_digest(config)
    if not config.is_file() or is_beside:
        _write_json(output / CALIBRATION_FILE, calibration)
        (output / OLD_CALIBRATION_FILE).unlink(missing_ok=True)
        return str(output / CALIBRATION_FILE)
    _write_json(config, {**json.loads(config.read_text(encoding="utf-8")), "coverage_calibration": calibration})
    return f"{config}: `coverage_calibration`"


def _has_digest(file: Path) -> bool:
    """Return whether a file belongs to a download, whose next use would refuse it if it changed."""
    files = (read_object(file.with_name(FACTS_FILE)) or {}).get("files")
    return isinstance(files, dict) and file.name in files


def _write_json(file: Path, content: dict[str, Any]) -> None:
    write_output(file, json.dumps(content, indent=2, sort_keys=True) + "\n")
