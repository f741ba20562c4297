"""CapsNMT against its simple baseline: routed capsules, or pooled states, trained alike on the embedded corpus.

    python scripts/compare_source_aggregation.py                     # about ten minutes on one core
    python scripts/compare_source_aggregation.py --hidden-size 192 --epochs 6

Both models have the same width, layers, data, order of the data, and learning rate. Translates the test sentences
with both, greedily, and compares the BLEU scores by paired bootstrap resampling (Koehn 2004). Writes a JSON result.
"""

import argparse
import os
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import torch
from datasets import Dataset
from sacrebleu.metrics import BLEU
from sacrebleu.significance import PairedTest
from tqdm import tqdm
from transformers import (
    DataCollatorForSeq2Seq,
    PreTrainedTokenizerFast,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
    set_seed,
)

from hf_capsule_mt import CapsNMTConfig, CapsNMTForConditionalGeneration
from hf_capsule_mt.command_line import HelpFormatter, positive, run
from hf_capsule_mt.data import embedded_corpus, train_tokenizer
from hf_capsule_mt.evaluation import write_result


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=HelpFormatter)
    parser.add_argument("--hidden-size", type=int, default=128, help="width of both models")
    parser.add_argument("--epochs", type=float, default=8, help="how often to go through the training sentences")
    parser.add_argument("--train-sentences", type=positive, default=20_000, help="how many sentences to train on")
    parser.add_argument("--test-sentences", type=positive, default=500, help="how many sentences to translate")
    parser.add_argument("--learning-rate", type=float, default=3e-3, help="its peak, after 100 steps")
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--resamples", type=int, default=1000, help="bootstrap samples of the test sentences")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, help="processor threads to use (default: all)")
    parser.add_argument(
        "--output", type=Path, default=Path("outputs/capsules-against-pooling.json"), help="the result"
    )
    return parser.parse_args()


def train(
    aggregation: str, tokenizer: PreTrainedTokenizerFast, examples: Dataset, arguments: argparse.Namespace
) -> CapsNMTForConditionalGeneration:
    set_seed(arguments.seed)
    model = CapsNMTForConditionalGeneration(
        CapsNMTConfig(
            vocab_size=len(tokenizer),
            hidden_size=arguments.hidden_size,
            encoder_layers=2,
            decoder_layers=2,
            aggregation=aggregation,
            dropout=arguments.dropout,
            label_smoothing=0.1,
            pad_token_id=tokenizer.pad_token_id,
            eos_token_id=tokenizer.eos_token_id,
            decoder_start_token_id=tokenizer.pad_token_id,
        )
    )
    with tempfile.TemporaryDirectory() as folder:
        trainer = Seq2SeqTrainer(
            model=model,
            args=Seq2SeqTrainingArguments(
                output_dir=folder,
                num_train_epochs=arguments.epochs,
                per_device_train_batch_size=128,
                learning_rate=arguments.learning_rate,
                warmup_steps=100,
                lr_scheduler_type="linear",
                adam_beta2=0.98,
                logging_steps=100,
                save_strategy="no",
                report_to="none",
                seed=arguments.seed,
            ),
            train_dataset=examples,
            data_collator=DataCollatorForSeq2Seq(tokenizer, model=model),
            processing_class=tokenizer,
        )
        trainer.train()
    return model.eval()


@torch.no_grad()
def translate(
    model: CapsNMTForConditionalGeneration, tokenizer: PreTrainedTokenizerFast, sources: list[str]
) -> list[str]:
    translations: list[str] = []
    for start in tqdm(range(0, len(sources), 50), desc="Translating"):
        batch = tokenizer(sources[start : start + 50], padding=True, return_tensors="pt").to(model.device)
        output = model.generate(batch["input_ids"], attention_mask=batch["attention_mask"], max_new_tokens=100)
        translations += tokenizer.batch_decode(output, skip_special_tokens=True)
    return translations


def main() -> None:
    arguments = parse_arguments()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    corpus = embedded_corpus(train=arguments.train_sentences, validation=1, test=arguments.test_sentences)
    tokenizer = train_tokenizer((t for pair in corpus["train"]["translation"] for t in pair.values()), vocab_size=2000)

    def encode(pairs: dict[str, list[dict[str, str]]]) -> dict[str, list[list[int]]]:
        source, target = ([pair[language] for pair in pairs["translation"]] for language in ("en", "de"))
        return tokenizer(source, text_target=target)

    examples = corpus["train"].map(encode, batched=True, remove_columns="translation", desc="Tokenizing")
    sources, references = ([pair[language] for pair in corpus["test"]["translation"]] for language in ("en", "de"))
    systems: dict[str, dict[str, Any]] = {}
    translations = {}
    for aggregation in ("pooling", "capsules"):
        start = time.perf_counter()
        model = train(aggregation, tokenizer, examples, arguments)
        seconds = time.perf_counter() - start
        translations[aggregation] = translate(model, tokenizer, sources)
        parameters = sum(parameter.numel() for parameter in model.parameters())
        systems[aggregation] = {"parameters": parameters, "training_seconds": round(seconds, 1)}
    metric = BLEU(references=[references])
    _, scores = PairedTest(list(translations.items()), {"BLEU": metric}, None, "bs", arguments.resamples)()
    for (name, system), score in zip(systems.items(), scores["BLEU"], strict=True):
        system.update({"bleu": score.score, "bootstrap_mean": score.mean, "bootstrap_interval": score.ci})
        system["p_value"] = score.p_value
        print(f"{name}: BLEU {score.score:.2f}, {system['parameters']:,} parameters, p = {score.p_value}")
    settings = {key: value for key, value in vars(arguments).items() if key != "output"}
    path = write_result(
        arguments.output, {"settings": settings, "signature": str(metric.get_signature()), "systems": systems}
    )
    print(f"Written to {path}.")


if __name__ == "__main__":
    run(main)
