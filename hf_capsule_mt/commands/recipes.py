"""List the recipes of the package, or print one with all inherited values.

    capsule-mt recipes                        # all recipes, one per line
    capsule-mt recipes embedded               # the recipes of one corpus or paper
    capsule-mt recipes embedded/em_routing    # this recipe, as YAML
    capsule-mt recipes my.yaml                # a file of your own, checked

Small recipes are named `corpus/method`. A recipe for a row of a paper's table is named after a method, a model or
`baseline`, then the row. To change a recipe, write a YAML file with `base: embedded/em_routing` and your changes, and
pass it to `capsule-mt train`.
"""

import dataclasses
import sys

from capsule_mt.commands.console import CommandParser


def main() -> None:
    parser = CommandParser(description=__doc__)
    parser.add_argument("recipe", nargs="?", help="the name of a recipe or of a group of them, or a YAML file")
    recipe = parser.parse_args().recipe
    import yaml

    from hf_capsule_mt.training import load_recipe, recipe_names

    group = None if recipe is None else f"{recipe.rstrip('/')}/"
    names = [name for name in recipe_names() if group is None or name.startswith(group)]
    if names:
        width = max(map(len, names))
        print("\n".join(f"{name:<{width}}  {load_recipe(name).about}" for name in names))
        return
    values = {key: value for key, value in dataclasses.asdict(load_recipe(recipe)).items() if value or key == "seed"}
    yaml.safe_dump(values, sys.stdout, sort_keys=False, allow_unicode=True, width=120)
