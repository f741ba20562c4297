"""Find, download and remove models by name.

    capsule-mt models                                       # downloaded models
    capsule-mt models search portuguese                     # in Mozilla's registry, and OPUS-MT on the hub
    capsule-mt models download en-pt Helsinki-NLP/opus-mt-de-en
    capsule-mt models remove en-pt
    capsule-mt models --check en-pt                         # whether it is read correctly; a row to report

    echo "Good morning." | capsule-mt translate en-pt       # downloads it the first time

A name is a language pair of Mozilla's registry (Firefox Translations), with `:tiny` or `:base` for other sizes, or the
name of a model on the Hugging Face hub. Pairs without a model go through English: `capsule-mt translate de-pt`.

To mark quickly what was left out, a model needs a calibration. Those of en-pt and pt-en come with the program; for
another model, `capsule-mt calibrate` stores one with the model. The marks of en-pt are verified if the reverse model,
pt-en, is downloaded; otherwise they come from attention alone.

CAPSULE_MT_CACHE is the folder of downloaded models. CAPSULE_MT_OFFLINE=1 forbids the network. CAPSULE_MT_REGISTRY and
HF_ENDPOINT name mirrors. Each model has its own licence, which its NOTICE.txt repeats: credit its author.
"""

import argparse
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from capsule_mt.commands.console import CommandParser, resumable

if TYPE_CHECKING:
    from capsule_mt.catalog.entries import CatalogEntry
    from capsule_mt.catalog.store import DownloadedModel

CHECK_HEADER = """\
| model | file, SHA-256 | Marian | layers | vocabulary | probes kept |
|---|---|---|---|---|---|"""
ROW = "{:<34} {:<24} {:>8}  {:<14} {}"


def parse_arguments() -> argparse.Namespace:
    parser = CommandParser(description=__doc__)
    parser.add_argument(
        "--check",
        nargs="+",
        metavar="NAME",
        help="download models, compare their files with their digests, translate probes, and print the results",
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION")
    actions.add_parser("list", help="list the downloaded models (the default)")
    search = actions.add_parser("search", help="list models that can be downloaded")
    search.add_argument(
        "words", nargs="*", help="language codes, language names, or parts of model names; all must match"
    )
    for name, summary in (("download", "download models"), ("remove", "remove downloaded models")):
        action = actions.add_parser(name, help=summary)
        action.add_argument(
            "names", nargs="+", metavar="NAME", help="en-pt, en-pt:tiny, Helsinki-NLP/opus-mt-de-en, ..."
        )
    return parser.parse_args()


def print_models(models: "Iterable[DownloadedModel | CatalogEntry]") -> None:
    print(ROW.format("name", "languages", "MB", "licence", "author"))
    for model in models:
        megabytes = f"{model.size / 1e6:.1f}" if model.size else "-"
        print(ROW.format(model.name, languages_of(model.name), megabytes, model.licence, model.author).rstrip())


def languages_of(name: str) -> str:
    from capsule_mt.catalog.entries import languages_in
    from capsule_mt.text.languages import LANGUAGES

    return " to ".join(LANGUAGES.get(code, code) for code in languages_in(name) or ())


def list_downloaded() -> None:
    from capsule_mt.catalog.entries import cache_folder
    from capsule_mt.catalog.store import downloaded_models

    models = downloaded_models()
    if not models:
        print(f"no models in {cache_folder()}; `capsule-mt models search` lists models to download")
        return
    print_models(models)
    print(f"in {cache_folder()}")


def search(words: list[str]) -> int:
    from capsule_mt.catalog import hub, mozilla
    from capsule_mt.catalog.entries import CatalogError, DownloadError, without_regions
    from capsule_mt.text.languages import LANGUAGES, without_region

    def matches(name: str) -> bool:
        parts = [*name.lower().replace(":", "-").split("-"), *languages_of(name).lower().split()]
        return all(word in parts or word in name.lower() for word in query)

    # "en-pt" in lowercase is a pair, and not English as in Portugal
    query = [(word if word.islower() else without_region(without_regions(word))).lower() for word in words]
    codes = {language.lower(): code for code, language in LANGUAGES.items()}
    entries, problems = [], []
    try:
        entries += [entry for entry in mozilla.read_registry() if matches(entry.name)]
    except (CatalogError, DownloadError) as error:
        problems.append(error)
    try:
        # the hub searches names, and OPUS-MT's have codes: "portuguese" finds nothing there
        entries += hub.search_hub("-".join(codes.get(word, word) for word in query)) if query else []
    except (CatalogError, DownloadError) as error:
        problems.append(error)
    if entries:
        print_models(entries)
    for problem in problems:
        print(problem, file=sys.stderr)
    if not entries and not problems:
        print(f"no model matches {' '.join(words)!r}", file=sys.stderr)
    return 0 if entries else 1


def download(name: str) -> None:
    from capsule_mt.catalog.store import legs_of, resolve

    with resumable():
        for leg in legs_of(name):
            print(resolve(leg))


def remove(name: str) -> None:
    from capsule_mt.catalog.store import remove_model

    print(f"removed {remove_model(name)}")


def check(names: list[str]) -> int:
    """Print a row for a report on each model; return 1 if one does not translate."""
    from capsule_mt.catalog.store import legs_of, resolve
    from capsule_mt.models.loading import load_model
    from capsule_mt.translate.first_use import MIN_KEPT, PROBES, check_files, num_kept, translate_probes
    from capsule_mt.translate.translator import Translator

    print(CHECK_HEADER)
    status = 0
    for leg in [leg for name in names for leg in legs_of(name)]:
        folder = resolve(leg)
        check_files(folder, digests=True)
        translator = Translator(load_model(folder))
        if translator.is_multilingual:
            raise ValueError(f"{leg}: is a model of many languages; only models of one pair translate the probes")
        translations = translate_probes(translator.loaded)
        print(f"| {Path(leg).name} | {described(folder)} | {num_kept(translations)} of {len(PROBES)} |")
        if num_kept(translations) < MIN_KEPT:
            print(f"{leg}: translates the probes by {list(translations.values())}", file=sys.stderr)
            status = 1
    return status


def described(folder: str) -> str:
    """Return the cells of a row that say what the files of a model are."""
    from capsule_mt.files.digests import file_digest
    from capsule_mt.models.loading import open_checkpoint
    from capsule_mt.models.marian_checkpoint import MarianCheckpoint
    from capsule_mt.models.marian_files import options_of

    checkpoint = open_checkpoint(folder)
    config = checkpoint.config
    layers = "{} + {} layers of {}".format(
        *(config.get(name, "?") for name in ("encoder_layers", "decoder_layers", "d_model"))
    )
    if not isinstance(checkpoint, MarianCheckpoint):
        return f"{config['model_type']} | - | {layers} | {config.get('vocab_size', '?'):,}"
    file, options = checkpoint.files.model, options_of(checkpoint.stored)
    version = str(options.get("version", "-")).partition(" ")[0]
    kind = options.get("dec-cell") if options.get("transformer-decoder-autoreg") == "rnn" else "attention"
    sizes = dict.fromkeys(checkpoint.files.vocabularies)
    vocabularies = " and ".join(f"{len(pieces.texts):,}" for pieces, _ in zip(checkpoint.pieces, sizes, strict=False))
    digest = file_digest(file)[:12]
    return f"{Path(file).name}, {digest} | {version} | {layers}, {kind} | {vocabularies}"


ACTIONS: dict[str, Callable[[str], None]] = {"download": download, "remove": remove}


def main() -> int:
    arguments = parse_arguments()
    if arguments.check:
        return check(arguments.check)
    if arguments.action in (None, "list"):
        list_downloaded()
        return 0
    if arguments.action == "search":
        return search(arguments.words)
    for name in arguments.names:
        ACTIONS[arguments.action](name)
    return 0
