"""Publish a checkpoint on the hub: self-contained, with its model card, after a load test.

    capsule-mt push outputs/demo owner/model
    capsule-mt push outputs/demo owner/model --results outputs/newstest.json --private

    capsule-mt push --from-firefox en-pt owner/model    # a student of Firefox Translations, by its name or folder

The last converts Mozilla's files, compares the tokens of 20 sentences with those that the engine reads from these
files, and writes a card with Mozilla's licence and metadata.

To look at the folder first, or to change its card, write it with `capsule-mt export`, and publish it with `hf upload
owner/model FOLDER`.

Others load the checkpoint with `trust_remote_code=True`, without this package. Log in with `hf auth login`, or set
HF_TOKEN.
"""

import argparse
from pathlib import Path
from typing import Any

from capsule_mt.commands.console import CommandParser, checkpoint_folder

TRAINING_RESULT = "train_result.json"


def add_card_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for what a model card says beyond the checkpoint."""
    parser.add_argument(
        "--results",
        type=Path,
        nargs="*",
        default=[],
        help=f"result files for the card; {TRAINING_RESULT} of the checkpoint is read anyway",
    )
    parser.add_argument("--license", help="of the weights, by its name on the hub (default: by the training data)")


def card_results(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Return the result files for the card, the training's first."""
    from hf_capsule_mt.evaluation import read_result

    files = [arguments.checkpoint / TRAINING_RESULT, *arguments.results]
    return [read_result(path) for path in files if path.exists() or path in arguments.results]


def main() -> None:
    parser = CommandParser(description=__doc__)
    parser.add_argument(
        "checkpoint", help="a folder with a model and its tokenizer; with --from-firefox, a student's name or folder"
    )
    parser.add_argument("repository", help="owner/name on the hub; created if it does not exist")
    parser.add_argument("--from-firefox", action="store_true", help="convert a student of Firefox Translations")
    add_card_options(parser)
    parser.add_argument("--private", action="store_true", help="make the repository private")
    arguments = parser.parse_args()
    if arguments.from_firefox and (arguments.results or arguments.license):
        parser.error("--results and --license do not go with --from-firefox: the card is made of Mozilla's metadata")
    from hf_capsule_mt.hub import push, push_from_firefox
    from hf_capsule_mt.hub.pushing import check_repo_id

    private = arguments.private or None
    if arguments.from_firefox:
        from capsule_mt.catalog.store import model_folder

        check_repo_id(arguments.repository)  # before a model is downloaded
        folder = model_folder(arguments.checkpoint, "push each of them")
        commit = push_from_firefox(folder, arguments.repository, private=private)
    else:
        try:
            arguments.checkpoint = checkpoint_folder(arguments.checkpoint)
        except argparse.ArgumentTypeError as error:
            parser.error(f"argument checkpoint: {error}")
        settings = {"private": private, "license": arguments.license}
        commit = push(arguments.checkpoint, arguments.repository, results=card_results(arguments), **settings)
    print(commit.commit_url)
