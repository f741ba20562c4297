"""Write a checkpoint that loads without this package, with `trust_remote_code=True`, and test that it does.

    capsule-mt export outputs/demo outputs/exported

The folder holds the weights, the tokenizer, the code of the model in one file, and a model card: the checkpoint's own
README.md, or one generated from `train_result.json` and `--results`.
"""

from capsule_mt.commands.console import CommandParser, checkpoint_folder, new_folder
from capsule_mt.files.lock import open_folder
from hf_capsule_mt.commands.push import add_card_options, card_results


def main() -> None:
    parser = CommandParser(description=__doc__)
    parser.add_argument("checkpoint", type=checkpoint_folder, help="a folder with a model and its tokenizer")
    parser.add_argument("output", type=new_folder, help="the folder to write; it must be new or empty")
    add_card_options(parser)
    arguments = parser.parse_args()
    from hf_capsule_mt.hub import write_folder

    name = arguments.output.name
    with open_folder(arguments.output) as partial:
        write_folder(arguments.checkpoint, partial, name, card_results(arguments), arguments.license)
    print(f"{arguments.output} is complete, and loads without the package")
