"""The speed of the translation pipeline beside a loop over `generate()`, measured in turns in one process.

    python scripts/benchmark_translation.py outputs/demo --num-beams 4 --output docs/results/translation-speed.json
    python scripts/benchmark_translation.py outputs/demo --input text.en --sentences 2000

The loop sorts all sentences by length and batches them by number; `scripts/translate.py` runs the pipeline. Both give
the same translations, which is checked.
"""

import argparse
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from hf_capsule_mt import TranslationPipeline
from hf_capsule_mt.commands.command_line import HelpFormatter, checkpoint, positive, run
from hf_capsule_mt.data import embedded_corpus
from hf_capsule_mt.evaluation import write_result
from lab.timing import time_in_turns


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=HelpFormatter)
    parser.add_argument("model", type=checkpoint, help="a checkpoint: a folder, or a name on the hub")
    parser.add_argument("--input", type=Path, help="a sentence on a line (default: English of the embedded corpus)")
    parser.add_argument("--sentences", type=positive, default=2000, help="how many of them")
    parser.add_argument("--batch-size", type=positive, default=64, help="of the loop")
    parser.add_argument(
        "--batch-tokens", type=positive, default=2048, help="of the pipeline, as in scripts/translate.py"
    )
    parser.add_argument("--num-beams", type=positive, default=4, help="hypotheses of beam search")
    parser.add_argument(
        "--max-new-tokens", type=int, default=100, help="of the loop; the pipeline sets its own limits"
    )
    parser.add_argument("--repeats", type=positive, default=3, help="counted runs of both")
    parser.add_argument("--recipe", help="the recipe of the model, to be kept")
    parser.add_argument("--output", type=Path, help="the result file to write")
    return parser.parse_args()


def read_sentences(arguments: argparse.Namespace) -> list[str]:
    if arguments.input is None:
        corpus = embedded_corpus(train=0, validation=0, test=arguments.sentences)
        return [pair["en"] for pair in corpus["test"]["translation"]]
    return arguments.input.read_text(encoding="utf-8").split("\n")[: arguments.sentences]


@torch.inference_mode()
def translate_in_a_loop(model: Any, tokenizer: Any, texts: list[str], arguments: argparse.Namespace) -> list[str]:
    encoded = tokenizer(texts)["input_ids"]
    order = sorted(range(len(texts)), key=lambda index: len(encoded[index]), reverse=True)
    translations = [""] * len(texts)
    for first in range(0, len(order), arguments.batch_size):
        batch = order[first : first + arguments.batch_size]
        inputs = tokenizer.pad({"input_ids": [encoded[index] for index in batch]}, return_tensors="pt")
        settings = {"num_beams": arguments.num_beams, "max_length": None, "max_new_tokens": arguments.max_new_tokens}
        output = model.generate(**inputs.to(model.device), **settings)
        for index, text in zip(batch, tokenizer.batch_decode(output, skip_special_tokens=True), strict=True):
            translations[index] = text
    return translations


def main() -> None:
    arguments = parse_arguments()
    tokenizer = AutoTokenizer.from_pretrained(arguments.model)
    model = AutoModelForSeq2SeqLM.from_pretrained(arguments.model).eval()
    model.to("cuda" if torch.cuda.is_available() else "cpu")
    translator = TranslationPipeline(model=model, tokenizer=tokenizer, device=model.device)
    texts = read_sentences(arguments)
    translations: dict[str, list[str]] = {}

    def loop() -> None:
        translations["loop"] = translate_in_a_loop(model, tokenizer, texts, arguments)

    def pipe() -> None:
        records = translator(texts, num_beams=arguments.num_beams, batch_tokens=arguments.batch_tokens)
        translations["pipeline"] = [record["translation_text"] for record in records]

    timings = time_in_turns({"loop": loop, "pipeline": pipe}, repeats=arguments.repeats)
    same = sum(one == other for one, other in zip(translations["loop"], translations["pipeline"], strict=True))
    speeds = {name: len(texts) / timing.median for name, timing in timings.items()}
    for name, speed in speeds.items():
        print(f"{name:>8}: {speed:8.1f} sentences per second")
    print(
        f"pipeline / loop: {speeds['pipeline'] / speeds['loop']:.3f}; {same} of {len(texts)} translations are the same"
    )
    if arguments.output:
        result = {
            "kind": "speed",
            "recipe": arguments.recipe,
            "model": arguments.model,
            "sentences": len(texts),
            "sentences_per_second": speeds["pipeline"],
            "sentences_per_second_of_a_loop": speeds["loop"],
            "same_translations": same,
            "batch_tokens": arguments.batch_tokens,
            "batch_size_of_the_loop": arguments.batch_size,
            "num_beams": arguments.num_beams,
        }
        print(f"Result: {write_result(arguments.output, result)}")


if __name__ == "__main__":
    run(main)
