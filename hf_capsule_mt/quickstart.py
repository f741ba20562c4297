"""What `capsule-mt quickstart` does: train two small models, and translate with both."""

from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from capsule_mt.coverage.problems import MIN_COVERED
from hf_capsule_mt.decoding.translator import Translator
from hf_capsule_mt.evaluation import read_result, write_result
from hf_capsule_mt.training import load_recipe, run_recipe
from hf_capsule_mt.training.recipes import Recipe
from hf_capsule_mt.training.run import RESULT_FILE
from hf_capsule_mt.training.run_data import load_corpus
from hf_capsule_mt.training.run_identity import check_same_recipe

# what makes a run faster than its recipe: fewer test sentences, and fewer but larger steps
CHANGES: dict[str, Any] = {
    "data.test": {"embedded": 300},
    "training.gradient_accumulation_steps": 3,
    "training.learning_rate": 2e-3,
    "training.lr_scheduler_type": "inverse_sqrt",
    "training.warmup_steps": 100,
    "training.eval_steps": 250,
    "training.save_steps": 250,
}


def recipe_for(name: str, output: Path, seed: int) -> Recipe:
    return load_recipe(f"embedded/{name}", CHANGES | {"output_dir": str(output), "seed": seed})


def train(recipe: Recipe) -> dict[str, Any]:
    """Train, and return the result; an earlier run of this recipe that has finished is not repeated."""
    finished = Path(recipe.output_dir) / RESULT_FILE
    print(f"\n{recipe.about} -> {recipe.output_dir}")
    check_same_recipe(recipe, Path(recipe.output_dir), write=False)
    result = read_result(finished) if finished.exists() else None
    if result is None or result["recipe"]["training"] != recipe.training:
        result = run_recipe(recipe)
    if result is None:
        raise SystemExit("Stopped by a signal. The same command resumes the run.")
    return result


def show_translations(recipe: Recipe, plain_output: Path, num_sentences: int = 4) -> None:
    pairs = load_corpus(recipe)["test"]["translation"][:num_sentences]
    sources = [pair["en"] for pair in pairs]
    translations = [Translator.from_pretrained(folder)(sources) for folder in (plain_output, recipe.output_dir)]
    for pair, plain, capsules in zip(pairs, *translations, strict=True):
        print(f"\n{pair['en']}\n  plain:     {plain.text}\n  capsules:  {capsules.text}\n  reference: {pair['de']}")


def show_coverage(recipe: Recipe) -> None:
    """Print the coverage of a whole translation and of one that is cut short."""
    translator = Translator.from_pretrained(recipe.output_dir)
    pair = load_corpus(recipe)["test"]["translation"][0]
    words = pair["de"].split()
    targets = [pair["de"], " ".join(words[: len(words) // 2]) + "."]
    for target, coverage in zip(targets, translator.cover([pair["en"]] * len(targets), targets), strict=True):
        missing = ", ".join(word.text for word in coverage.words if word.covered < MIN_COVERED)
        print(f"\n{pair['en']}\n  {target}\n  coverage {coverage.score:.2f}, left out: {missing or 'nothing'}")


def quickstart(method: str, output: Path, seeds: Sequence[int]) -> None:
    """Train the plain model and one with a method, and compare them."""
    recipe = recipe_for(method, output, seeds[0])  # an unknown method fails before the plain model takes minutes
    scores: dict[str, list[float]] = {"plain": [], method: []}
    for seed in seeds:
        suffix = "" if seed == seeds[0] else f"_seed{seed}"
        for name in scores:
            kind_suffix = "_plain" if name == "plain" else ""
            folder = output.with_name(f"{output.name}{kind_suffix}{suffix}")
            result = train(recipe_for(name, folder, seed))
            scores[name].append(result["scores"]["test_bleu"])
    plain_output = output.with_name(f"{output.name}_plain")
    show_translations(recipe, plain_output)
    show_coverage(recipe)
    print()
    for name, values in scores.items():
        spread = f" ({', '.join(f'{value:.1f}' for value in values)})" if len(values) > 1 else ""
        print(f"BLEU of {name:<12} {mean(values):5.1f}{spread}")
    print(result["signature"])
    if len(seeds) > 1:
        measured = {"seeds": list(seeds), "test_bleu": scores, "signature": result["signature"]}
        print(f"Written to {write_result(output / 'seeds.json', measured)}")
    print(f"Checkpoint: {output}. Use it: capsule-mt translate {output} --input FILE")
