"""The model of `tests/fixtures/word_for_word.py`: it has PAST and FUTURE, and learns the language pair in minutes.

Every source word has one translation, at the same position. In most training pairs the second half of the translation
is missing. So the model leaves words out, as translation models do, although it could go on.
"""

import random

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast, set_seed

from hf_capsule_mt import CapsuleMarianConfig, CapsuleMarianMTModel
from tests.fixtures.word_for_word import SOURCE, TARGET, TRANSLATION, sentences


def word_tokenizer() -> PreTrainedTokenizerFast:
    vocabulary = {token: index for index, token in enumerate(["<pad>", "</s>", "<unk>", *SOURCE, *TARGET])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        eos_token="</s>",
        unk_token="<unk>",
        model_input_names=["input_ids", "attention_mask"],
    )


def train_word_for_word(
    steps: int = 1500, seed: int = 1, **settings
) -> tuple[CapsuleMarianMTModel, PreTrainedTokenizerFast]:
    """Return a trained model and its tokenizer."""
    set_seed(seed)
    generator, tokenizer = random.Random(seed), word_tokenizer()
    model = CapsuleMarianMTModel(
        CapsuleMarianConfig(
            **{"encoder_layers": 2, "decoder_layers": 2, **settings},
            vocab_size=len(tokenizer),
            d_model=32,
            encoder_attention_heads=4,
            decoder_attention_heads=4,
            encoder_ffn_dim=32,
            decoder_ffn_dim=32,
            max_position_embeddings=32,
            init_std=0.1,
            scale_embedding=True,
            dropout=0.0,
            pad_token_id=0,
            eos_token_id=1,
            decoder_start_token_id=0,
            forced_eos_token_id=None,
            guided_routing="guided",
            guided_num_redundant_capsules=0,
            guided_capsule_dim=16,
            guided_ffn_dim=32,
        )
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for step in range(steps):
        texts = sentences(48, seed=generator.randrange(2**32))
        targets = [[TRANSLATION[word] for word in text.split()] for text in texts]
        cut = [words[: (len(words) + 1) // 2] if generator.random() < 0.6 else words for words in targets]
        batch = tokenizer(texts, text_target=[" ".join(words) for words in cut], padding=True, return_tensors="pt")
        batch["labels"][batch["labels"] == 0] = -100
        for group in optimizer.param_groups:
            group["lr"] = 3e-3 * min(1.0, (step + 1) / 50, 2 * (steps - step) / steps)
        optimizer.zero_grad()
        model(**batch).loss.backward()
        optimizer.step()
    model.generation_config.max_new_tokens = 12
    model.generation_config.max_length = None
    return model.eval(), tokenizer
