"""The translation pipeline beside a loop over `generate()`, in turns in one process.

The loop sorts all sentences by length and batches them by number. Both must give the same translations.
"""

import argparse
from typing import Any

import torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from hf_capsule_mt import TranslationPipeline
from hf_capsule_mt.data import embedded_corpus
from hf_capsule_mt.files.text import read_lines
from lab.timing import time_in_turns


def read_sentences(arguments: argparse.Namespace) -> list[str]:
    if arguments.input is None:
        corpus = embedded_corpus(train=0, validation=0, test=arguments.sentences)
        return [pair["en"] for pair in corpus["test"]["translation"]]
    return read_lines(arguments.input)[: arguments.sentences]


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


def pipeline_speed(arguments: argparse.Namespace) -> dict[str, Any]:
    """Measure both in turns, and return a result of kind "speed"."""
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
    return {
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
