"""Translate a training set by a teacher: sequence-level knowledge distillation (CapsNMT, section 4.2).

    capsule-mt distill embedded/plain outputs/distilled_embedded --teacher outputs/embedded_plain
    torchrun --nproc_per_node 8 scripts/distill.py my.yaml outputs/distilled --teacher Helsinki-NLP/opus-mt-en-de

Translates the `data.train` of the student's or the teacher's recipe, cleaned as the recipe says. A recipe takes the
result as `data: {train: {jsonl: ./outputs/distilled/part-*.jsonl}}`. The same command again resumes a killed run.
A line that cannot be translated is left out, its reason is on stderr, and the exit code is 3.
"""

import argparse
import os
import sys
from pathlib import Path

from capsule_mt.commands.console import CommandParser, positive, resumable
from capsule_mt.text.digests import checkpoint_digests
from capsule_mt.text.line_failures import CODE_OF_FAILED_LINES
from capsule_mt.text.outputs import check_output_folder
from capsule_mt.text.segments import LANGUAGE_TOKEN
from hf_capsule_mt.commands.arguments import checkpoint

DEFAULT_NEW_TOKENS = 256


def parse_arguments() -> argparse.Namespace:
    parser = CommandParser(description=__doc__)
    parser.add_argument("recipe", help="a name or a YAML file: whose training data to translate")
    parser.add_argument("output", type=Path, help="the folder of the result")
    parser.add_argument(
        "--teacher", type=checkpoint, required=True, help="a sequence-to-sequence checkpoint, a folder or a name"
    )
    parser.add_argument("--data-dir", help="folder that relative file names in the recipe start from")
    parser.add_argument("--num-beams", type=positive, default=4, help="width of the beam")
    parser.add_argument("--length-penalty", type=float, default=1.0, help="above 0 favours long translations")
    parser.add_argument(
        "--max-new-tokens",
        type=positive,
        help=f"longest translation; by default {DEFAULT_NEW_TOKENS}, or as many as the teacher has positions for",
    )
    parser.add_argument(
        "--max-source-tokens", type=positive, default=256, help="where sources are cut, at most the teacher's limit"
    )
    parser.add_argument("--sentences-per-batch", type=positive, default=64, help="sentences of a batch")
    parser.add_argument("--words-per-batch", type=positive, default=2048, help="source words of a batch, with padding")
    parser.add_argument("--lines-per-file", type=positive, default=1024, help="most lines that a killed run repeats")
    parser.add_argument("--first", type=positive, help="only the first so many sentences")
    parser.add_argument(
        "--dtype", default="float32", choices=["float32", "bfloat16", "float16"], help="dtype of the teacher"
    )
    parser.add_argument("--cpu", action="store_true", help="stay off a GPU")
    return parser.parse_args()


def longest_translation(arguments: argparse.Namespace, limit: int | None) -> int:
    """Return the most tokens of a translation; refuse more than the teacher has positions for."""
    given: int | None = arguments.max_new_tokens
    if given is None:
        return min(DEFAULT_NEW_TOKENS, limit or DEFAULT_NEW_TOKENS)
    if limit is not None and given > limit:
        raise ValueError(
            f"--max-new-tokens is {given}, but {arguments.teacher} has positions for {limit} tokens of a translation: "
            f"give at most {limit}"
        )
    return given


@resumable()
def main() -> int:
    arguments = parse_arguments()
    import torch
    from accelerate import PartialState

    from hf_capsule_mt.decoding.fast import takes_fast, to_fast
    from hf_capsule_mt.decoding.tokenizer import max_source_tokens, needs_more
    from hf_capsule_mt.modeling.loading import load_checkpoint
    from hf_capsule_mt.training.distillation import Teacher, distill
    from hf_capsule_mt.training.recipes import load_recipe
    from hf_capsule_mt.training.run_data import load_corpus

    check_output_folder(arguments.output)
    processes = PartialState(cpu=arguments.cpu or not torch.accelerator.is_available())
    recipe = load_recipe(arguments.recipe, {"data_dir": arguments.data_dir} if arguments.data_dir else None)
    source, target = recipe.languages["source"], recipe.languages["target"]
    with processes.main_process_first():
        train = load_corpus(recipe)["train"]
    sources = [pair[source] for pair in train["translation"]][: arguments.first]
    model, tokenizer = load_checkpoint(arguments.teacher, dtype=getattr(torch, arguments.dtype))
    if needs_more(model.config, tokenizer) and not any(LANGUAGE_TOKEN.match(text) for text in sources[:1]):
        raise ValueError(
            f"--teacher {arguments.teacher}: sources need a language or a prefix, which this command does not give; "
            "take a bilingual teacher, or translate the text by `capsule-mt translate --tgt-lang`"
        )
    of_teacher = max_source_tokens(model, tokenizer)
    longest_source = min(arguments.max_source_tokens, of_teacher or arguments.max_source_tokens)
    search = {
        "num_beams": arguments.num_beams,
        "length_penalty": arguments.length_penalty,
        "max_new_tokens": longest_translation(arguments, getattr(model.config, "max_position_embeddings", None)),
    }
    model.to(processes.device)
    exact = processes.device.type == "cpu" and model.dtype == torch.float32 and takes_fast(model)
    decoder = to_fast(model, int8=False) if exact else None
    teacher = Teacher(model, tokenizer, max_source_tokens=longest_source, decoder=decoder, **search)
    settings = {
        "teacher": arguments.teacher,
        "teacher_files": checkpoint_digests(arguments.teacher, getattr(model.config, "_commit_hash", None)),
        "recipe": recipe.data,
        "generation": search,
        "max_source_tokens": longest_source,
        "dtype": arguments.dtype,
    }
    facts = distill(
        teacher,
        sources,
        arguments.output,
        source_language=source,
        target_language=target,
        settings=settings,
        lines_per_file=arguments.lines_per_file,
        sentences_per_batch=arguments.sentences_per_batch,
        words_per_batch=arguments.words_per_batch,
    )
    if processes.is_main_process:
        files = os.path.join(".", arguments.output, "part-*.jsonl")
        for index, reason in facts["failures"].items():
            print(f"line {index} of the source, from 0, is left out: {reason}", file=sys.stderr)
        print(f"{facts['lines'] - len(facts['failures']):,} lines: data: {{train: {{jsonl: {files}}}}}")
    processes.destroy_process_group()
    return CODE_OF_FAILED_LINES if facts.get("failures") else 0
