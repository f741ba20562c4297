"""Train a tiny model of NLLB's shape on the embedded corpus, with transformers alone: a base to try adapters on.

    python examples/tiny_nllb.py outputs/tiny-nllb --steps 1500

It is an `M2M100ForConditionalGeneration` with an `NllbTokenizer`, which has NLLB's codes of languages and a vocabulary
learned from the corpus. Recipes with `adapter:` start from it as from NLLB: `adapter.yaml` reads the text that is
written beside it.
"""

import argparse
from pathlib import Path

from transformers import (
    AutoModelForSeq2SeqLM,
    DataCollatorForSeq2Seq,
    M2M100Config,
    NllbTokenizer,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
    set_seed,
)

from hf_capsule_mt.data import embedded_corpus

LANGUAGES = {"en": "eng_Latn", "de": "deu_Latn"}
SIZES = {"d_model": 64, "encoder_layers": 4, "decoder_layers": 2, "encoder_ffn_dim": 128, "decoder_ffn_dim": 128}
HEADS = {"encoder_attention_heads": 4, "decoder_attention_heads": 4, "max_position_embeddings": 128}
DROPOUT = {"dropout": 0.1, "attention_dropout": 0.0, "encoder_layerdrop": 0.0, "decoder_layerdrop": 0.0}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path, help="where the checkpoint and the text go")
    parser.add_argument("--steps", type=int, default=1500, help="of 32 sentence pairs each")
    arguments = parser.parse_args()
    set_seed(1)

    corpus = embedded_corpus(train=20_000, validation=200, test=500)
    arguments.output.mkdir(parents=True, exist_ok=True)
    for part, pairs in corpus.items():
        lines = ["\t".join(LANGUAGES.values()), *("\t".join(pair.values()) for pair in pairs["translation"])]
        (arguments.output / f"{part}.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")

    sources, targets = ([pair[name] for pair in corpus["train"]["translation"]] for name in LANGUAGES)
    tokenizer = NllbTokenizer().train_new_from_iterator([*sources, *targets], vocab_size=1000)
    tokenizer.src_lang, tokenizer.tgt_lang = LANGUAGES.values()
    encoded = tokenizer(sources, text_target=targets)
    examples = [{name: encoded[name][index] for name in ("input_ids", "labels")} for index in range(len(sources))]
    model = AutoModelForSeq2SeqLM.from_config(M2M100Config(vocab_size=len(tokenizer), **SIZES, **HEADS, **DROPOUT))
    model.generation_config.forced_bos_token_id = tokenizer.convert_tokens_to_ids(tokenizer.tgt_lang)
    trainer = Seq2SeqTrainer(
        model=model,
        args=Seq2SeqTrainingArguments(
            str(arguments.output),
            max_steps=arguments.steps,
            per_device_train_batch_size=32,
            learning_rate=3e-3,
            warmup_steps=150,
            logging_steps=100,
            save_strategy="no",
            report_to="none",
        ),
        train_dataset=examples,
        data_collator=DataCollatorForSeq2Seq(tokenizer, model=model),
        processing_class=tokenizer,
    )
    trainer.train()
    trainer.save_model()


if __name__ == "__main__":
    main()
