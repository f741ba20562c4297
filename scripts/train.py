"""From parallel text to a trained checkpoint, with one command.

    python scripts/train.py embedded/em_routing
    python scripts/train.py RECIPE.yaml --max_steps 100 --model.dropout 0.2 --output_dir outputs/try

The same command again resumes a run that was killed, to the bit on the CPU. SIGTERM and Ctrl-C save a checkpoint and
end it cleanly. Several GPUs, on one machine or many, mixed precision and FSDP: docs/training.md.

    torchrun --nproc_per_node 8 scripts/train.py RECIPE.yaml --bf16 true

A recipe is a YAML file; its keys are described in hf_capsule_mt/training/recipes.py. Every field can be set on the
command line: by its name where that is unique, else as section.name.
"""

import argparse
import os

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

from hf_capsule_mt.command_line import HelpFormatter, keep_freed_memory, run
from hf_capsule_mt.training import load_recipe, parse_overrides, run_recipe


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=HelpFormatter, allow_abbrev=False)
    parser.add_argument("recipe", help="a name that `capsule-mt recipes` lists, or a YAML file")
    arguments, overrides = parser.parse_known_args()
    try:
        recipe = load_recipe(arguments.recipe, parse_overrides(overrides))
    except (ValueError, OSError) as error:
        parser.error(str(error))
    keep_freed_memory()
    result = run_recipe(recipe)
    if int(os.environ.get("RANK", 0)) != 0:
        return 0
    if result is None:
        print(f"Stopped by a signal; a checkpoint is in {recipe.output_dir}. The same command resumes.")
        return 0
    for name, score in result["scores"].items():
        print(f"{name}: {score:.2f}")
    print(f"{result['signature']}\nCheckpoint: {recipe.output_dir}")
    return 0


if __name__ == "__main__":
    run(main)
