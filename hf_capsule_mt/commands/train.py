"""Train a model by a recipe, from parallel text to a checkpoint.

    capsule-mt train embedded/em_routing
    capsule-mt train my.yaml --max_steps 100 --model.dropout 0.2 --output_dir outputs/try
    torchrun --nproc_per_node 8 scripts/train.py my.yaml --bf16 true

To resume a killed run, run the same command again; on a CPU, it ends bit-identical to an uninterrupted run. The
first SIGTERM or Ctrl-C ends the run with exit code 0, even while it reads data or writes the last translations; during
training, it saves a checkpoint first. docs/training.md describes several GPUs and machines, mixed precision and FSDP.

`capsule-mt recipes` lists the recipes. After the recipe, set any of its fields: by its name if that is unique,
otherwise as section.name. hf_capsule_mt/training/recipes.py describes the fields.
"""

import os

from capsule_mt.commands.console import CommandParser, resumable
from hf_capsule_mt.commands.arguments import keep_freed_memory


@resumable()
def main() -> int:
    parser = CommandParser(description=__doc__)
    parser.add_argument("recipe", help="a name that `capsule-mt recipes` lists, or a YAML file")
    arguments, overrides = parser.parse_known_args()
    from hf_capsule_mt.training import load_recipe, parse_overrides, run_recipe
    from hf_capsule_mt.training.checkpoints import last_checkpoint

    try:
        recipe = load_recipe(arguments.recipe, parse_overrides(overrides))
    except (ValueError, OSError) as error:
        parser.error(str(error))
    keep_freed_memory()
    result = run_recipe(recipe)
    if int(os.environ.get("RANK", 0)) != 0:
        return 0
    if result is None:
        checkpoint = last_checkpoint(recipe.output_dir)
        action = "starts again from the beginning" if checkpoint is None else f"resumes from {checkpoint}"
        print(f"Stopped by a signal. The same command {action}.")
        return 0
    for name, score in result["scores"].items():
        print(f"{name}: {score:.2f}")
    print(f"{result['signature']}\nCheckpoint: {recipe.output_dir}")
    return 0
