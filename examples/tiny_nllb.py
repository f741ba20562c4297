"""Train a tiny model of NLLB's shape on your own text, with transformers alone: a base to try adapters on.

    python examples/tiny_nllb.py outputs/tiny-nllb train.en.gz train.de.gz eng_Latn deu_Latn

It is an `M2M100ForConditionalGeneration` with an `NllbTokenizer`, which has NLLB's codes of languages and a vocabulary
learned from these files. Recipes with `adapter:` start from it as from NLLB ([example](adapter.yaml)).
"""

import argparse
import gzip

from transformers import (
    AutoModelForSeq2SeqLM,
    DataCollatorForSeq2Seq,
    M2M100Config,
    NllbTokenizer,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
    set_seed,
)

SIZES = {"d_model": 64, "encoder_layers": 4, "decoder_layers": 2, "encoder_ffn_dim": 128, "decoder_ffn_dim": 128}
HEADS = {"encoder_attention_heads": 4, "decoder_attention_heads": 4, "max_position_embeddings": 128}
DROPOUT = {"dropout": 0.1, "attention_dropout": 0.0, "encoder_layerdrop": 0.0, "decoder_layerdrop": 0.0}


def read(path: str) -> list[str]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [line.strip() for line in lines]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", help="where the checkpoint goes")
    parser.add_argument("source_file", help="a sentence per line, compressed by gzip")
    parser.add_argument("target_file", help="their translations")
    parser.add_argument("source", help="NLLB's code of the source language")
    parser.add_argument("target", help="NLLB's code of the target language")
    parser.add_argument("--steps", type=int, default=1500, help="of 64 sentence pairs each")
    arguments = parser.parse_args()
    set_seed(1)

    sources, targets = read(arguments.source_file), read(arguments.target_file)
    tokenizer = NllbTokenizer().train_new_from_iterator([*sources, *targets], vocab_size=2000)
    tokenizer.src_lang, tokenizer.tgt_lang = arguments.source, arguments.target
    encoded = tokenizer(sources, text_target=targets, max_length=64, truncation=True)
    pairs = [{name: encoded[name][index] for name in ("input_ids", "labels")} for index in range(len(sources))]
    config = M2M100Config(vocab_size=len(tokenizer), **SIZES, **HEADS, **DROPOUT)
    model = AutoModelForSeq2SeqLM.from_config(config)
    model.generation_config.forced_bos_token_id = tokenizer.convert_tokens_to_ids(arguments.target)
    trainer = Seq2SeqTrainer(
        model=model,
        args=Seq2SeqTrainingArguments(
            arguments.output,
            max_steps=arguments.steps,
            per_device_train_batch_size=64,
            train_sampling_strategy="group_by_length",
            learning_rate=3e-3,
            warmup_steps=300,
            logging_steps=100,
            save_strategy="no",
            report_to="none",
        ),
        train_dataset=pairs,
        data_collator=DataCollatorForSeq2Seq(tokenizer, model=model),
        processing_class=tokenizer,
    )
    trainer.train()
    trainer.save_model()


if __name__ == "__main__":
    main()
