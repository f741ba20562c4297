"""Convert a model: between files of Marian (Firefox Translations) and of transformers, to fewer bits, for the browser.

    capsule-mt convert CHECKPOINT OUT --to int8       # a quarter to a third of float32's size; --int8
    capsule-mt convert CHECKPOINT OUT --to small --text en.txt    # half to two thirds of int8's size; --int8, too
    capsule-mt convert ENCODER OUT --to int8 --languages en,de,pt    # an encoder without the pieces of other languages
    capsule-mt convert FOLDER OUT --to huggingface    # config.json, model.safetensors, tokenizer.json, shortlist
    capsule-mt convert CHECKPOINT OUT --to marian     # model.npz, vocabularies, shortlist, config.yml: for Marian
    capsule-mt convert FOLDER OUT --to web            # model.capsule in int8, for a page in the browser, or node
    capsule-mt convert en-pt OUT --to web --text en.txt    # the same, small; a name: `capsule-mt models --help`

- int8 and small convert the translation models of the engine, except for those of CTranslate2. An int8 checkpoint
  translates as the original does with --int8. A small one changes some translations a little; one that would lose
  more than --max-loss is refused. Its rounding is chosen while the model translates the first 500 lines of --text,
  which are sentences of the source language; this needs the extra `calibrate`. A model of many languages translates
  them from --src-lang to --tgt-lang. It can be used for other pairs, too.
- With --languages, --to int8 cuts the vocabulary of an encoder, such as a judge's, to the pieces in the scripts of
  some languages, with --text to those in its lines, which then should be some 10,000 of each language.
- huggingface writes a Capsule Marian that transformers can train further. To translate with a folder of Marian, you do
  not need to convert it.
- marian refuses features that Marian does not support, and names them.
- web converts models of one language pair, such as OPUS-MT.

hf-capsule-mt adds transformers' MarianMTModel, and capsules on top of a Marian: `capsule-mt convert --to marianmt
--help`.
"""

import argparse
import importlib
import itertools
import sys
import tempfile
from pathlib import Path

from capsule_mt.catalog.entries import FACTS_FILE
from capsule_mt.commands import HF_INSTALL, further_commands
from capsule_mt.commands.console import CommandParser, add_languages, new_folder
from capsule_mt.files.lock import open_folder
from capsule_mt.files.reading import read_lines
from capsule_mt.models.weights import SMALL_FILE

TARGETS = ("int8", "small", "huggingface", "marian", "web")
HF_TARGETS = ("marianmt",)  # those of hf-capsule-mt
NUM_SENTENCES = 500  # that --to small translates


def main() -> None:
    parser = CommandParser(description=__doc__)
    if _ran_elsewhere(parser):
        return
    arguments = _parse_arguments(parser)
    is_cut = arguments.to == "int8" and arguments.languages is not None
    sources = [] if arguments.text is None or is_cut else _sentences(arguments.text)
    from capsule_mt.catalog.store import model_folder  # late: not every conversion is this distribution's

    model = Path(model_folder(arguments.model, "convert each of them"))
    if (model / FACTS_FILE).exists():
        _load(model)  # checks a download that was never used
    from capsule_mt.models.loading import refuse_adapter, refuse_ctranslate2

    refuse_adapter(model)
    refuse_ctranslate2(model)
    with open_folder(arguments.out) as partial:
        _convert(model, argparse.Namespace(**{**vars(arguments), "out": partial}), sources)
    for file in sorted(arguments.out.iterdir()):
        print(file)
    if arguments.to == "marian":
        _warn_of_languages(model, arguments.out)


def _ran_elsewhere(parser: CommandParser) -> bool:
    """Let hf-capsule-mt run a conversion that needs torch; return whether it did."""
    # look at the direction before anything else
    direction_parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    direction_parser.add_argument("--to", dest="target")
    direction_parser.add_argument("--from", dest="source")
    direction, _ = direction_parser.parse_known_args()
    if direction.source is None and (direction.target is None or direction.target in TARGETS):
        return False
    modules = [module for module, _ in further_commands().values()]
    if modules:
        importlib.import_module(modules[0]).start("convert")
        return True
    if direction.source is not None or direction.target in HF_TARGETS:
        option = f"--to {direction.target}" if direction.source is None else f"--from {direction.source}"
        parser.error(f"{option} needs hf-capsule-mt, which is not installed; {HF_INSTALL}")
    return False


def _parse_arguments(parser: CommandParser) -> argparse.Namespace:
    parser.add_argument("model", help="the folder of a model, a .zip of OPUS-MT, or a name such as en-pt")
    parser.add_argument("out", type=new_folder, help="the folder to write; it must be new or empty")
    parser.add_argument("--to", choices=TARGETS, required=True, help="the kind of files to write")
    parser.add_argument(
        "--languages",
        metavar="CODES",
        help="with --to web: SRC-TGT, if the folder does not name its languages; with --to int8: those to which an "
        "encoder is cut, such as en,de,pt",
    )
    parser.add_argument(
        "--text",
        type=Path,
        help="with --to small or web: sentences of the source language, one a line; with --languages and --to int8: "
        "lines of all languages",
    )
    parser.add_argument(
        "--max-loss",
        type=float,
        metavar="NATS",
        help="with --text: the most log-probability that rounding may cost, in nats a token (default: 0.006; a "
        "larger one makes a smaller file and worse translations)",
    )
    add_languages(parser)
    arguments = parser.parse_args()
    if arguments.max_loss is not None and (arguments.text is None or not arguments.max_loss > 0):
        parser.error(f"--max-loss goes with --text, and must be above 0, got {arguments.max_loss:g}")
    if arguments.to != "small" and (arguments.src_lang or arguments.tgt_lang):
        parser.error(f"--src-lang and --tgt-lang go with --to small, not with --to {arguments.to}")
    if arguments.languages is not None and arguments.to not in ("web", "int8"):
        parser.error(f"--languages goes with --to web or int8, not with --to {arguments.to}")
    if arguments.text is None and arguments.to == "small":
        parser.error("--to small needs --text FILE, sentences of the source language")
    is_cut = arguments.to == "int8" and arguments.languages is not None
    if arguments.text is not None and arguments.to not in ("small", "web") and not is_cut:
        parser.error(
            f"--text goes with --to small, --to web or --languages and --to int8, not with --to {arguments.to}"
        )
    return arguments


def _convert(model: Path, arguments: argparse.Namespace, sources: list[str]) -> None:
    """Write the model in a folder as files of the kind `--to`."""
    if arguments.to == "web":
        _write_web(model, arguments, sources)
    elif arguments.to == "int8" and arguments.languages is not None:
        from capsule_mt.conversions.to_languages import write_languages

        lines = [] if arguments.text is None else [line for line in read_lines(arguments.text) if line.strip()]
        print(write_languages(model, arguments.out, arguments.languages.split(","), lines), file=sys.stderr)
    elif arguments.to == "int8":
        from capsule_mt.conversions.to_int8 import write_int8

        write_int8(model, arguments.out)
    elif arguments.to == "small":
        languages = {"src_lang": arguments.src_lang, "tgt_lang": arguments.tgt_lang}
        _write_small(model, arguments.out, sources, arguments.max_loss, **languages)
    elif arguments.to == "huggingface":
        from capsule_mt.catalog.pairs import pair_of
        from capsule_mt.catalog.student import is_download_of_mozilla, read_student, write_student_card
        from capsule_mt.conversions.to_huggingface import write_huggingface

        write_huggingface(model, arguments.out, languages=pair_of(str(model)))
        if is_download_of_mozilla(model):  # whose licence and languages are known
            write_student_card(read_student(model), arguments.out)
    else:
        from capsule_mt.conversions.to_marian import write_marian_folder

        write_marian_folder(model, arguments.out)


def _warn_of_languages(model: Path, out: Path) -> None:
    """Say so if the model's languages are not known of the files that were written."""
    from capsule_mt.catalog.pairs import pair_of

    pair = pair_of(str(model))
    if pair is not None and pair_of(str(out)) != pair:
        message = f"Marian's files do not name languages: put {pair} into the folder's name, or rules of these"
        print(f"{message} languages are not used", file=sys.stderr)


def _load(model: Path) -> None:
    from capsule_mt.models.encoder_loading import is_encoder

    if is_encoder(str(model)):
        from capsule_mt.judge.encoder import Encoder

        Encoder.from_pretrained(model)
    else:
        from capsule_mt.translate.translator import Translator

        Translator.from_pretrained(model)


def _write_web(model: Path, arguments: argparse.Namespace, sources: list[str]) -> None:
    from capsule_mt.catalog.pairs import languages_of
    from capsule_mt.web.model_file import MODEL_FILE, check_is_one_pair, write_web

    check_is_one_pair(model)  # before its languages are asked for, and before it is made small
    source, target = languages_of(model, arguments.languages)
    with tempfile.TemporaryDirectory() as small:
        if sources:
            _write_small(model, small, sources, arguments.max_loss)
        arguments.out.mkdir(parents=True, exist_ok=True)
        write_web(small if sources else model, arguments.out / MODEL_FILE, source, target)


def _write_small(
    model: Path, out: str | Path, sources: list[str], max_loss: float | None, **languages: str | None
) -> None:
    from capsule_mt.coverage.calibration.rounding import MAX_LOSS, write_small  # late: needs numpy

    loss = write_small(model, out, sources, max_loss=max_loss or MAX_LOSS, **languages)
    size = Path(out, SMALL_FILE).stat().st_size / 1e6
    message = f"{size:.2f} MB; a token of the translations of --text is {loss:.4f} nats less probable than in int8"
    print(message, file=sys.stderr)


def _sentences(file: Path) -> list[str]:
    """Return the first `NUM_SENTENCES` lines of a file that are not empty."""
    lines = (line for line in read_lines(file) if line.strip())
    sources = list(itertools.islice(lines, NUM_SENTENCES))
    if not sources:
        raise ValueError(f"{file}: has no sentence; --to small needs some {NUM_SENTENCES} of the source language")
    return sources
