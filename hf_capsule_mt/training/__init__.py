"""From parallel text to a trained checkpoint."""

from hf_capsule_mt.training.arguments import TranslationTrainingArguments
from hf_capsule_mt.training.batching import TokenBudgetBatchSampler
from hf_capsule_mt.training.checkpoints import average_checkpoints, average_weights, last_checkpoints
from hf_capsule_mt.training.models import build_config, build_model, train_only
from hf_capsule_mt.training.recipe_files import parse_overrides, recipe_names
from hf_capsule_mt.training.recipes import Recipe, load_recipe
from hf_capsule_mt.training.run import run_recipe
from hf_capsule_mt.training.sharding import gather_weights
from hf_capsule_mt.training.trainer import TranslationTrainer

__all__ = [
    "Recipe",
    "TokenBudgetBatchSampler",
    "TranslationTrainer",
    "TranslationTrainingArguments",
    "average_checkpoints",
    "average_weights",
    "build_config",
    "build_model",
    "gather_weights",
    "last_checkpoints",
    "load_recipe",
    "parse_overrides",
    "recipe_names",
    "run_recipe",
    "train_only",
]
