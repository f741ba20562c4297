"""Publish a checkpoint on the hub: self-contained, with its model card, after a load test.

    capsule-mt push outputs/demo owner/model
    capsule-mt push outputs/demo owner/model --results outputs/newstest.json --private

`capsule-mt export` writes the same folder, to look at it first.

Others load it by `trust_remote_code=True`, without this package. Log in with `hf auth login`, or set HF_TOKEN.
"""

import argparse
import tempfile
from pathlib import Path

from capsule_mt.commands.console import CommandParser, checkpoint_folder

TRAINING_RESULT = "train_result.json"


def add_card_options(parser: argparse.ArgumentParser) -> None:
    """Add what a model card is made of beside the checkpoint."""
    parser.add_argument(
        "--results",
        type=Path,
        nargs="*",
        default=[],
        help=f"result files for the card; {TRAINING_RESULT} of the checkpoint is read anyway",
    )
    parser.add_argument("--license", help="of the weights, by its name on the hub (default: by the training data)")


def parse_arguments() -> argparse.Namespace:
    parser = CommandParser(description=__doc__)
    parser.add_argument("checkpoint", type=checkpoint_folder, help="a folder with a model and its tokenizer")
    parser.add_argument("repository", help="owner/name on the hub; made if it is not there")
    add_card_options(parser)
    parser.add_argument("--private", action="store_true", help="make the repository private")
    return parser.parse_args()


def write_folder(arguments: argparse.Namespace, folder: Path, name: str) -> None:
    """Write the exported checkpoint with its card, whose title is the name."""
    from hf_capsule_mt.evaluation import read_result
    from hf_capsule_mt.hub import export, model_card
    from hf_capsule_mt.loading import load_checkpoint, stored_dtype

    model, tokenizer = load_checkpoint(arguments.checkpoint, dtype=stored_dtype(arguments.checkpoint))
    export(model, tokenizer, folder)
    files = [arguments.checkpoint / TRAINING_RESULT, *arguments.results]
    results = [read_result(path) for path in files if path.exists() or path in arguments.results]
    card = model_card(name, model.config.to_dict(), results, license=arguments.license)
    (folder / "README.md").write_text(str(card), encoding="utf-8")


def main() -> None:
    arguments = parse_arguments()
    from huggingface_hub.utils import validate_repo_id

    from hf_capsule_mt.hub import push

    validate_repo_id(arguments.repository)
    with tempfile.TemporaryDirectory() as folder:
        write_folder(arguments, Path(folder), name=arguments.repository)
        commit = push(folder, arguments.repository, private=arguments.private or None)
    print(commit.commit_url)
