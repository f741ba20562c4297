"""Training a subword tokenizer that transformers loads like any other."""

import json
from collections.abc import Iterable

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

PAD, EOS, UNK = "<pad>", "</s>", "<unk>"
SPACE = "▁"
BYTE_TOKENS = [f"<0x{byte:02X}>" for byte in range(256)]


def train_tokenizer(texts: Iterable[str], vocab_size: int) -> PreTrainedTokenizerFast:
    """A byte-pair encoding of NFKC-normalised text, in which a character it has not seen is spelt in UTF-8 bytes.

    Train it on both sides of the parallel text for a joint vocabulary. Ids: 0 is `<pad>`, which also starts the
    decoder, 1 is `</s>`, which ends every text, 2 is `<unk>`, then come the 256 bytes.
    """
    special = [PAD, EOS, UNK]
    if vocab_size < len(special) + len(BYTE_TOKENS):
        raise ValueError(f"`vocab_size` must be at least {len(special) + len(BYTE_TOKENS)}, got {vocab_size}")
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, unk_token=UNK))
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement=SPACE, prepend_scheme="always")
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size - len(BYTE_TOKENS), special_tokens=special, show_progress=False, limit_alphabet=1000
    )
    tokenizer.train_from_iterator(texts, trainer)

    # The bytes enter the vocabulary as plain tokens: as special ones, decoding would leave them out
    learned = json.loads(tokenizer.to_str())["model"]
    vocabulary = {token: index for index, token in enumerate(special + BYTE_TOKENS)}
    for token in sorted(learned["vocab"], key=learned["vocab"].__getitem__):
        vocabulary.setdefault(token, len(vocabulary))
    merges = [tuple(merge) for merge in learned["merges"]]
    tokenizer.model = models.BPE(vocabulary, merges, byte_fallback=True, unk_token=UNK)
    tokenizer.add_special_tokens(special)
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"$A {EOS}", pair=f"$A {EOS} $B {EOS}", special_tokens=[(EOS, vocabulary[EOS])]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        eos_token=EOS,
        unk_token=UNK,
        model_input_names=["input_ids", "attention_mask"],
        clean_up_tokenization_spaces=False,
    )
