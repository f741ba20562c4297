"""A first look, in about three minutes: train a small capsule model on the embedded corpus and translate with it.

    python scripts/demo.py                                            # what `make demo` runs
    python scripts/demo.py --layer-aggregation none --output outputs/plain

Saves a checkpoint that `AutoModelForSeq2SeqLM` and `pipeline("translation")` load, prints translations beside the
references, and draws how the decoder routes its layers.
"""

import argparse
import os
from pathlib import Path
from typing import get_args

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import torch
from datasets import Dataset
from sacrebleu.metrics import BLEU
from transformers import DataCollatorForSeq2Seq, Seq2SeqTrainer, Seq2SeqTrainingArguments, pipeline, set_seed

from hf_capsule_mt import CapsuleMarianConfig, CapsuleMarianMTModel
from hf_capsule_mt.analysis.pictures import draw_layer_routing
from hf_capsule_mt.configuration.configuration_capsule_marian import LayerAggregationMethod
from hf_capsule_mt.data import embedded_corpus, train_tokenizer


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layer-aggregation", choices=get_args(LayerAggregationMethod), default="em_routing")
    parser.add_argument("--epochs", type=float, default=2, help="how often to go through the training sentences")
    parser.add_argument("--train-sentences", type=int, default=20_000, help="how many sentences to train on")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", type=Path, default=Path("outputs/demo"), help="where the checkpoint goes")
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments()
    set_seed(arguments.seed)
    corpus = embedded_corpus(train=arguments.train_sentences, validation=100, test=300)
    texts = (text for pair in corpus["train"]["translation"] for text in pair.values())
    tokenizer = train_tokenizer(texts, vocab_size=2000)
    model = CapsuleMarianMTModel(
        CapsuleMarianConfig(
            vocab_size=len(tokenizer),
            d_model=128,
            encoder_layers=3,
            decoder_layers=3,
            encoder_attention_heads=4,
            decoder_attention_heads=4,
            encoder_ffn_dim=512,
            decoder_ffn_dim=512,
            max_position_embeddings=128,
            activation_function="relu",
            scale_embedding=True,
            pad_token_id=tokenizer.pad_token_id,
            eos_token_id=tokenizer.eos_token_id,
            decoder_start_token_id=tokenizer.pad_token_id,
            forced_eos_token_id=None,
            label_smoothing=0.1,
            layer_aggregation=arguments.layer_aggregation,
            layer_aggregation_residual=True,
        )
    )
    print(
        f"{sum(p.numel() for p in model.parameters()):,} parameters, layer aggregation: {arguments.layer_aggregation}"
    )

    def encode(pairs: dict[str, list[dict[str, str]]]) -> dict[str, list[list[int]]]:
        source, target = ([pair[language] for pair in pairs["translation"]] for language in ("en", "de"))
        return tokenizer(source, text_target=target)

    def encoded(part: Dataset) -> Dataset:
        return part.map(encode, batched=True, remove_columns="translation", desc="Tokenizing")

    trainer = Seq2SeqTrainer(
        model=model,
        args=Seq2SeqTrainingArguments(
            output_dir=str(arguments.output),
            num_train_epochs=arguments.epochs,
            per_device_train_batch_size=64,
            learning_rate=2e-3,
            warmup_steps=100,
            lr_scheduler_type="inverse_sqrt",
            adam_beta2=0.98,
            logging_steps=100,
            save_strategy="no",
            report_to="none",
            seed=arguments.seed,
        ),
        train_dataset=encoded(corpus["train"]),
        data_collator=DataCollatorForSeq2Seq(tokenizer, model=model),
        processing_class=tokenizer,
    )
    trainer.train()
    model.generation_config.max_new_tokens = 100
    model.generation_config.max_length = None
    trainer.save_model()

    translator = pipeline("translation", model=str(arguments.output))
    sources, references = ([pair[language] for pair in corpus["test"]["translation"]] for language in ("en", "de"))
    translations = [result["translation_text"] for result in translator(sources, batch_size=50)]
    for source, translation, reference in list(zip(sources, translations, references, strict=True))[:5]:
        print(f"\n{source}\n  translation: {translation}\n  reference:   {reference}")
    bleu = BLEU()
    print(f"\n{bleu.corpus_score(translations, [references])}\n{bleu.get_signature()}")

    if arguments.layer_aggregation.endswith("routing"):
        batch = tokenizer(sources[0], text_target=references[0], return_tensors="pt")
        with torch.no_grad():
            weights = model.eval().cpu()(**batch, output_routing_weights=True).routing_weights
        picture = draw_layer_routing(weights["decoder.layer_aggregation"], arguments.output / "routing.png")
        print(f"Picture of the routing of the decoder's layers: {picture}")
    print(f'Checkpoint: {arguments.output}. Use it: pipeline("translation", model="{arguments.output}")')


if __name__ == "__main__":
    main()
