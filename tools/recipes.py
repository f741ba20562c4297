"""Print docs/recipes.md, the list of recipes: `python -m tools.recipes > docs/recipes.md`."""

from hf_capsule_mt.training import Recipe, load_recipe, recipe_names

ABOUT = """\
<!-- `python -m tools.recipes` writes this page. -->

# Recipes

`capsule-mt train NAME` trains a recipe, and `capsule-mt recipes NAME` prints it with everything that it inherits.
[Training](training.md#recipes) says how to write your own.

## Of our size: corpus/method

These train in minutes to hours on a CPU. `embedded` comes with the package; the other corpora are files in `data_dir`.
"""
PAPERS = """
## Rows of the papers' tables

We have not run these recipes. The comments in [baseline.yaml](../hf_capsule_mt/recipes/papers/baseline.yaml),
[guided_routing.yaml](../hf_capsule_mt/recipes/papers/guided_routing.yaml) and
[capsnmt.yaml](../hf_capsule_mt/recipes/papers/capsnmt.yaml) quote the papers' sentences behind the values, and
say where a paper is silent.
"""


def row(name: str, recipe: Recipe) -> str:
    return f"| `{name}` | {recipe.paper} | {recipe.about} |" if recipe.paper else f"| `{name}` | {recipe.about} |"


def page() -> str:
    """Return docs/recipes.md."""
    recipes = {name: load_recipe(name) for name in recipe_names()}
    small = [row(name, recipe) for name, recipe in recipes.items() if not recipe.paper]
    papers = [row(name, recipe) for name, recipe in recipes.items() if recipe.paper]
    tables = (
        (ABOUT, ["| recipe | what it trains |", "|---|---|", *small]),
        (PAPERS, ["| recipe | row | what it trains |", "|---|---|---|", *papers]),
    )
    return "\n".join("\n".join((text, *rows, "")) for text, rows in tables)


if __name__ == "__main__":
    print(page(), end="")
