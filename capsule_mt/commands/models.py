"""Find, download and remove models by name.

    capsule-mt models                                       # the downloaded ones
    capsule-mt models search portuguese                     # in Mozilla's registry, and OPUS-MT on the hub
    capsule-mt models download en-pt Helsinki-NLP/opus-mt-de-en
    capsule-mt models remove en-pt

    echo "Good morning." | capsule-mt translate en-pt       # downloads it the first time

A name is a language pair of Mozilla's registry (Firefox Translations), with `:tiny` or `:base` for other sizes, or the
name of a model on the Hugging Face hub. Pairs without a model go through English: `capsule-mt translate de-pt`.

Marks of what was left out need a calibration. `capsule-mt calibrate en-pt ...` stores one with the model; calibrations
of the pairs that we measured come with the program. The marks of en-pt are verified if the other direction, pt-en, is
downloaded, and otherwise made by attention alone.

CAPSULE_MT_CACHE is the folder of downloaded models, CAPSULE_MT_OFFLINE=1 forbids the network, CAPSULE_MT_REGISTRY and
HF_ENDPOINT name mirrors. Each model has its licence, which its NOTICE.txt repeats: credit its author.
"""

import argparse
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from capsule_mt.commands.console import CommandParser, resumable

if TYPE_CHECKING:
    from capsule_mt.catalog.entries import Entry
    from capsule_mt.catalog.store import DownloadedModel

ROW = "{:<34} {:<24} {:>8}  {:<14} {}"


def parse_arguments() -> argparse.Namespace:
    parser = CommandParser(description=__doc__)
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


def print_models(models: "Iterable[DownloadedModel | Entry]") -> None:
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

    # "en-pt" in small letters is a pair, and not English as in Portugal
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


ACTIONS: dict[str, Callable[[str], None]] = {"download": download, "remove": remove}


def main() -> int:
    arguments = parse_arguments()
    if arguments.action in (None, "list"):
        list_downloaded()
        return 0
    if arguments.action == "search":
        return search(arguments.words)
    for name in arguments.names:
        ACTIONS[arguments.action](name)
    return 0
