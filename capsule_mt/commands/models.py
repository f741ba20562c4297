"""Find, download and remove models by name.

    capsule-mt models                                       # those that are downloaded
    capsule-mt models search portuguese                     # those that there are: Mozilla's, and OPUS-MT's on the hub
    capsule-mt models download en-pt Helsinki-NLP/opus-mt-de-en
    capsule-mt models remove en-pt

    echo "Good morning." | capsule-mt translate en-pt       # downloads it at the first time

A name is a pair of languages of Mozilla's registry (Firefox Translations), with `:tiny`, `:base` for other sizes, or a
name on the Hugging Face hub. Pairs without a model go through English: `capsule-mt translate de-pt`.

Marks of what was left out need a calibration: `capsule-mt calibrate en-pt ...` keeps one with the model, and those of
the pairs that were measured here come with the program. The marks of en-pt are verified where the other direction,
pt-en, is downloaded, and made by attention alone where it is not.

CAPSULE_MT_CACHE is where models are kept, CAPSULE_MT_OFFLINE=1 forbids the network, CAPSULE_MT_REGISTRY and
HF_ENDPOINT name mirrors. Each model has a licence of its own, which its NOTICE.txt repeats: credit its author.
"""

import argparse
import sys
from collections.abc import Callable, Iterable

from capsule_mt.commands.console import CommandParser, resumable

ROW = "{:<34} {:<24} {:>8}  {:<14} {}"


def parse_arguments() -> argparse.Namespace:
    parser = CommandParser(description=__doc__)
    actions = parser.add_subparsers(dest="action", metavar="ACTION")
    actions.add_parser("list", help="list the models that are downloaded (the default)")
    search = actions.add_parser("search", help="list the models that there are")
    search.add_argument(
        "words", nargs="*", help="codes or names of languages, or parts of names; all of them must fit"
    )
    for name, explained in (("download", "download models"), ("remove", "remove downloaded models")):
        action = actions.add_parser(name, help=explained)
        action.add_argument(
            "names", nargs="+", metavar="NAME", help="en-pt, en-pt:tiny, Helsinki-NLP/opus-mt-de-en, ..."
        )
    return parser.parse_args()


def print_rows(rows: Iterable[tuple[str, str, int, str, str]]) -> None:
    print(ROW.format("name", "languages", "MB", "licence", "author"))
    for name, languages, size, licence, author in rows:
        print(ROW.format(name, languages, f"{size / 1e6:.1f}" if size else "-", licence, author).rstrip())


def languages_of(name: str) -> str:
    from capsule_mt.catalog.entries import languages_in
    from capsule_mt.text.languages import LANGUAGES

    return " to ".join(LANGUAGES.get(code, code) for code in languages_in(name) or ())


def list_kept() -> None:
    from capsule_mt.catalog.entries import cache_folder
    from capsule_mt.catalog.store import downloaded_models

    kept = downloaded_models()
    if not kept:
        print(f"no models in {cache_folder()}; `capsule-mt models search` lists those that there are")
        return
    print_rows((one.name, languages_of(one.name), one.size, one.licence, one.author) for one in kept)
    print(f"in {cache_folder()}")


def search(words: list[str]) -> int:
    from capsule_mt.catalog import hub, mozilla
    from capsule_mt.catalog.entries import CatalogError, DownloadError
    from capsule_mt.text.languages import LANGUAGES

    def fits(name: str) -> bool:
        parts = [*name.lower().replace(":", "-").split("-"), *languages_of(name).lower().split()]
        return all(word in parts or word in name.lower() for word in wanted)

    wanted = [word.lower() for word in words]
    codes = {language.lower(): code for code, language in LANGUAGES.items()}
    found, problems = [], []
    try:
        found += [entry for entry in mozilla.read_registry() if fits(entry.name)]
    except (CatalogError, DownloadError) as error:
        problems.append(error)
    try:
        found += hub.search_hub("-".join(codes.get(word, word) for word in wanted)) if wanted else []
    except (CatalogError, DownloadError) as error:
        problems.append(error)
    if found:
        print_rows((one.name, languages_of(one.name), one.size, one.licence, one.author) for one in found)
    for problem in problems:
        print(problem, file=sys.stderr)
    if not found and not problems:
        print(f"no model fits {' '.join(words)!r}", file=sys.stderr)
    return 0 if found else 1


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
        list_kept()
        return 0
    if arguments.action == "search":
        return search(arguments.words)
    for name in arguments.names:
        ACTIONS[arguments.action](name)
    return 0
