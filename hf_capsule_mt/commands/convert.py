"""Convert a checkpoint for other software, or a Marian checkpoint to one with capsules.

    capsule-mt convert outputs/embedded_plain as-marian --to marianmt  # transformers' MarianMTModel
    capsule-mt convert Helsinki-NLP/opus-mt-de-en start --from marian --set guided_routing=guided

Only a Capsule Marian without capsules can become a MarianMTModel. `capsule-mt convert --help` lists the other targets.
`--from marian` keeps the weights that the new model has, too. Train its other weights with `capsule-mt train`.
"""

import argparse
from typing import Any

from capsule_mt.commands import convert as light
from capsule_mt.commands.console import CommandParser, new_folder
from capsule_mt.files.lock import open_folder
from hf_capsule_mt.commands.arguments import checkpoint


def setting(text: str) -> tuple[str, Any]:
    """An `argparse` type: a field of `CapsuleMarianConfig` and its value, as YAML writes it."""
    name, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"must be NAME=VALUE, got {text}")
    import yaml

    try:
        return name, yaml.safe_load(value)
    except yaml.YAMLError as error:
        raise argparse.ArgumentTypeError(f"the value of {name} is not YAML: {value} ({error})") from None


def main() -> None:
    parser = CommandParser(description=__doc__)
    parser.add_argument("checkpoint", type=checkpoint, help="a folder with a model and its tokenizer, or a hub name")
    parser.add_argument("output", type=new_folder, help="the folder to write; it must be new or empty")
    direction = parser.add_mutually_exclusive_group(required=True)
    direction.add_argument("--to", choices=(*light.HF_TARGETS, *light.TARGETS), help="what to write")
    direction.add_argument("--from", dest="source", choices=("marian",), help="what to read, to add capsules to it")
    parser.add_argument(
        "--set",
        type=setting,
        nargs="+",
        action="extend",
        default=[],
        metavar="NAME=VALUE",
        help="fields of CapsuleMarianConfig",
    )
    arguments = parser.parse_args()
    if arguments.set and arguments.source is None:
        parser.error("--set goes with --from marian")
    if arguments.to in light.TARGETS:
        light.main()
        return
    import torch

    from hf_capsule_mt.loading import load_tokenizer, share_weights
    from hf_capsule_mt.modeling import CapsuleMarianMTModel

    tokenizer = load_tokenizer(arguments.checkpoint)
    if arguments.source is not None:
        settings = {"dtype": torch.float32, **dict(arguments.set)}  # in which the new weights are trained
        torch.manual_seed(0)  # the same command draws the same new weights
        model: Any = CapsuleMarianMTModel.from_marian(arguments.checkpoint, **settings)
    else:
        model = marianmt_of(arguments.checkpoint, tokenizer)
    with open_folder(arguments.output) as partial:
        model.save_pretrained(partial)
        share_weights(partial)
        tokenizer.save_pretrained(partial)
    print(f"{arguments.output} is written")


def marianmt_of(path: str, tokenizer: Any) -> Any:
    """Return the checkpoint as a MarianMTModel of transformers."""
    import torch

    from hf_capsule_mt.hub.conversion import to_marian
    from hf_capsule_mt.loading import check_tokenizer, load_model

    model = load_model(path, dtype=torch.float32)
    check_tokenizer(model, tokenizer)
    return to_marian(model)
