"""Translate a training set with a teacher: sequence-level knowledge distillation (CapsNMT, section 4.2).

    capsule-mt distill embedded/plain outputs/distilled_embedded --teacher outputs/embedded_plain
    torchrun --nproc_per_node 8 scripts/distill.py my.yaml outputs/distilled --teacher Helsinki-NLP/opus-mt-en-de

The command translates the `data.train` of the student's or the teacher's recipe, cleaned as the recipe says. To train
on the result, write `data: {train: {jsonl: ./outputs/distilled/part-*.jsonl}}` into a recipe. To resume a killed run,
run the same command again. A line that cannot be translated is left out; stderr gives the reason, and the exit code
is 3.
"""

import argparse
import os
import sys
from pathlib import Path
from typing import Any

from capsule_mt.commands.console import CommandParser, positive, resumable
from capsule_mt.files.digests import checkpoint_digests
from capsule_mt.files.line_failures import FAILED_LINES_STATUS
from capsule_mt.files.outputs import check_output_folder
from capsule_mt.messages import with_unit
from capsule_mt.text.segments import LEADING_TOKEN
from hf_capsule_mt.commands.arguments import checkpoint

BATCH_TOKENS = 4096  # of sources, with padding


def parse_arguments() -> argparse.Namespace:
    parser = CommandParser(description=__doc__)
    parser.add_argument("recipe", help="the recipe whose training data to translate: a name or a YAML file")
    parser.add_argument("output", type=Path, help="the folder of the result")
    parser.add_argument(
        "--teacher", type=checkpoint, required=True, help="a sequence-to-sequence checkpoint, a folder or a name"
    )
    parser.add_argument("--data-dir", help="the folder of relative file names in the recipe")
    parser.add_argument("--num-beams", type=positive, default=4, help="number of beams")
    parser.add_argument("--length-penalty", type=float, default=1.0, help="above 0 favours long translations")
    parser.add_argument(
        "--max-new-tokens", type=positive, help="the most tokens of a translation (default: the translator's)"
    )
    parser.add_argument(
        "--lines-per-part",
        type=positive,
        default=1024,
        help="lines in each file of the result; a resumed run repeats at most this many",
    )
    parser.add_argument(
        "--dtype", default="float32", choices=["float32", "bfloat16", "float16"], help="dtype of the teacher"
    )
    parser.add_argument("--cpu", action="store_true", help="do not use a GPU")
    return parser.parse_args()


@resumable()
def main() -> int:
    arguments = parse_arguments()
    import torch
    from accelerate import PartialState

    from hf_capsule_mt.decoding.transformers_tokenizer import needs_more
    from hf_capsule_mt.decoding.translator import load_translator
    from hf_capsule_mt.training.distillation import distill
    from hf_capsule_mt.training.recipes import load_recipe
    from hf_capsule_mt.training.run_data import load_corpus

    check_output_folder(arguments.output)
    processes = PartialState(cpu=arguments.cpu or not torch.accelerator.is_available())
    recipe = load_recipe(arguments.recipe, {"data_dir": arguments.data_dir} if arguments.data_dir else None)
    source, target = recipe.languages["source"], recipe.languages["target"]
    with processes.main_process_first():
        train = load_corpus(recipe)["train"]
    sources = [pair[source] for pair in train["translation"]]
    translator = load_translator(
        [arguments.teacher],
        backend="auto",
        cpu=arguments.cpu,
        dtype=arguments.dtype,
        int8=False,
        shortlist=False,
        reverse=None,
    )
    config = translator.model.config
    if needs_more(config, translator.tokenizer) and not any(LEADING_TOKEN.match(text) for text in sources[:1]):
        raise ValueError(
            f"--teacher {arguments.teacher}: sources need a language or a prefix, which this command does not give; "
            "use a bilingual teacher, or translate the text with `capsule-mt translate --tgt-lang`"
        )
    search: dict[str, Any] = {"num_beams": arguments.num_beams, "length_penalty": arguments.length_penalty}
    if arguments.max_new_tokens is not None:
        search["max_new_tokens"] = arguments.max_new_tokens

    def translate(texts: list[str]) -> list[str]:
        translations = translator(texts, batch_tokens=BATCH_TOKENS, scores=False, **search)
        return [" ".join(translation.text.split("\n")) for translation in translations]

    facts = distill(
        translate,
        sources,
        arguments.output,
        source_language=source,
        target_language=target,
        settings={
            "teacher": arguments.teacher,
            "teacher_files": checkpoint_digests(arguments.teacher, getattr(config, "_commit_hash", None)),
            "recipe": recipe.data,
            "generation": search,
            "dtype": arguments.dtype,
        },
        lines_per_part=arguments.lines_per_part,
    )
    if processes.is_main_process:
        files = os.path.join(".", arguments.output, "part-*.jsonl")
        for index, reason in facts["failures"].items():
            print(f"line {index} of the source, from 0, is left out: {reason}", file=sys.stderr)
        lines = with_unit(facts["lines"] - len(facts["failures"]), "lines")
        print(f"{lines}: data: {{train: {{jsonl: {files}}}}}")
    processes.destroy_process_group()
    return FAILED_LINES_STATUS if facts.get("failures") else 0
