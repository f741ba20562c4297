"""Convert between files of Marian, such as Firefox Translations' students, and files of transformers.

    capsule-mt convert FOLDER OUT --to huggingface    # config.json, model.safetensors, tokenizer.json, shortlist
    capsule-mt convert CHECKPOINT OUT --to marian     # model.npz, vocabularies, shortlist, config.yml: for Marian

The one writes a Capsule Marian that transformers trains on; translating takes a folder of Marian's as it is. The other
refuses, by name, what Marian cannot hold. hf-capsule-mt adds ONNX, int8,
CTranslate2, transformers' MarianMTModel and capsules on top of any Marian: `capsule-mt convert --to onnx --help`.
"""

import argparse
import importlib
from pathlib import Path

from capsule_mt.commands import further_commands
from capsule_mt.commands.console import CommandParser, folder

TARGETS = ("huggingface", "marian")


def main() -> None:
    asked = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    asked.add_argument("--to")
    asked.add_argument("--from", dest="source")
    direction, _ = asked.parse_known_args()
    if direction.source is not None or (direction.to is not None and direction.to not in TARGETS):
        further = [module for module, _ in further_commands().values()]
        if further:
            importlib.import_module(further[0]).start("convert")
            return
    parser = CommandParser(description=__doc__)
    parser.add_argument("model", type=folder, help="the folder of a model")
    parser.add_argument("out", type=Path, help="the folder to write; a new one, or an empty one")
    parser.add_argument("--to", choices=TARGETS, required=True, help="whose files to write")
    arguments = parser.parse_args()
    if arguments.out.exists() and (not arguments.out.is_dir() or any(arguments.out.iterdir())):
        raise ValueError(f"{arguments.out}: is there and not empty; name a new folder")
    if arguments.to == "huggingface":
        from capsule_mt.models.to_huggingface import write_huggingface

        write_huggingface(arguments.model, arguments.out)
    else:
        from capsule_mt.models.to_marian import write_marian_folder

        write_marian_folder(arguments.model, arguments.out)
    for file in sorted(arguments.out.iterdir()):
        print(file)
