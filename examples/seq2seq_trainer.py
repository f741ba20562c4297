"""Train Capsule Marian with transformers' own `Seq2SeqTrainer`, without recipes or commands of this package.

    python examples/seq2seq_trainer.py outputs/tuned --sentences 2000

Set label smoothing in the model's config, since the model computes its own loss. `eval_loss` contains the auxiliary
losses of PAST and FUTURE; the `TranslationTrainer` of this package also gives the cross entropy, `eval_nll_loss`.
"""

import argparse

from transformers import DataCollatorForSeq2Seq, Seq2SeqTrainer, Seq2SeqTrainingArguments

from hf_capsule_mt import CapsuleMarianConfig, CapsuleMarianMTModel
from hf_capsule_mt.data import embedded_corpus, train_tokenizer

SIZES = {"d_model": 64, "encoder_layers": 2, "decoder_layers": 2, "encoder_ffn_dim": 128, "decoder_ffn_dim": 128}
HEADS = {"encoder_attention_heads": 4, "decoder_attention_heads": 4, "max_position_embeddings": 256}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", help="where the checkpoint goes")
    parser.add_argument("--sentences", type=int, default=2000, help="how many sentence pairs to train on")
    arguments = parser.parse_args()

    corpus = embedded_corpus(train=arguments.sentences, validation=20, test=1)
    texts = [text for pair in corpus["train"]["translation"] for text in pair.values()]
    tokenizer = train_tokenizer(texts, vocab_size=500)
    encoded = {
        part: [tokenizer(pair["en"], text_target=pair["de"]) for pair in corpus[part]["translation"]]
        for part in ("train", "validation")
    }
    special = {"pad_token_id": tokenizer.pad_token_id, "eos_token_id": tokenizer.eos_token_id}
    config = CapsuleMarianConfig(
        **{**SIZES, **HEADS, **special},
        vocab_size=len(tokenizer),
        decoder_start_token_id=tokenizer.pad_token_id,
        forced_eos_token_id=None,
        guided_routing="guided",
        label_smoothing=0.1,
    )
    model = CapsuleMarianMTModel(config)
    trainer = Seq2SeqTrainer(
        model=model,
        args=Seq2SeqTrainingArguments(
            arguments.output,
            num_train_epochs=2,
            per_device_train_batch_size=32,
            learning_rate=1e-3,
            eval_strategy="epoch",
            save_strategy="no",
            report_to="none",
        ),
        train_dataset=encoded["train"],
        eval_dataset=encoded["validation"],
        data_collator=DataCollatorForSeq2Seq(tokenizer, model=model),
        processing_class=tokenizer,
    )
    trainer.train()
    trainer.save_model()


if __name__ == "__main__":
    main()
