"""Train subword tokenizers for transformers."""

import json
from collections.abc import Iterable
from typing import TypeVar

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from hf_capsule_mt.data.separate_tokenizer import SeparateVocabulariesTokenizer

SPECIAL = [PAD, EOS, UNK] = ["<pad>", "</s>", "<unk>"]
SPACE = "▁"
BYTE_TOKENS = [f"<0x{byte:02X}>" for byte in range(256)]
# A space becomes "▁". So a "▁" of the text is escaped as ESCAPE and "1", and an ESCAPE of the text as ESCAPE and "0"
ESCAPE = "\uf8ff"

FastTokenizer = TypeVar("FastTokenizer", bound=PreTrainedTokenizerFast)


def train_tokenizer(texts: Iterable[str], vocab_size: int, *, show_progress: bool = False) -> PreTrainedTokenizerFast:
    """Train BPE (Sennrich et al. 2016) on NFKC-normalised text, with UTF-8 bytes for unseen characters.

    Train it on both sides of the parallel text for a joint vocabulary. Ids: 0 is `<pad>`, which also starts the
    decoder, 1 is `</s>`, which ends every text, 2 is `<unk>`, then come the 256 bytes. Special tokens that occur in a
    text are encoded as text.

    Args:
        vocab_size: the number of tokens, specials and bytes included; fewer if the text does not yield as many, more
            if its characters, of which the 1,000 most frequent are always tokens, do not fit.
    """
    return _wrap(_train(texts, vocab_size, show_progress), PreTrainedTokenizerFast)


def train_separate_tokenizers(
    source_texts: Iterable[str],
    target_texts: Iterable[str],
    vocab_size: int,
    target_vocab_size: int | None = None,
    *,
    show_progress: bool = False,
) -> SeparateVocabulariesTokenizer:
    """Train one tokenizer with a source and a target vocabulary, each as `train_tokenizer` trains it."""
    source = _train(source_texts, vocab_size, show_progress)
    target = _train(target_texts, target_vocab_size or vocab_size, show_progress)
    return _wrap(source, SeparateVocabulariesTokenizer, target_tokenizer_object=target)


def _train(texts: Iterable[str], vocab_size: int, show_progress: bool) -> Tokenizer:
    smallest = len(SPECIAL) + len(BYTE_TOKENS)
    if vocab_size < smallest:
        raise ValueError(f"`vocab_size` must be at least {smallest}, got {vocab_size}")
    tokenizer = Tokenizer(models.BPE(unk_token=UNK))
    tokenizer.normalizer = normalizers.Sequence(
        [
            normalizers.NFKC(),
            normalizers.Replace(ESCAPE, f"{ESCAPE}0"),
            normalizers.Replace(SPACE, f"{ESCAPE}1"),
            normalizers.Prepend(" "),  # decoding strips it again
        ]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Metaspace(replacement=SPACE, prepend_scheme="never"), pre_tokenizers.Punctuation("isolated")]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size - len(BYTE_TOKENS),
        special_tokens=SPECIAL,
        show_progress=show_progress,
        limit_alphabet=1000,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.model = _with_bytes(tokenizer)
    tokenizer.add_special_tokens(SPECIAL)
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace(SPACE, " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Replace(f"{ESCAPE}1", SPACE),
            decoders.Replace(f"{ESCAPE}0", ESCAPE),
            decoders.Strip(" ", 1, 0),
        ]
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"$A {EOS}", pair=f"$A {EOS} $B {EOS}", special_tokens=[(EOS, SPECIAL.index(EOS))]
    )
    return tokenizer


def _with_bytes(tokenizer: Tokenizer) -> models.BPE:
    """Add the bytes to the vocabulary as plain tokens, because decoding skips special ones."""
    learned = json.loads(tokenizer.to_str())["model"]
    vocabulary = {token: index for index, token in enumerate(SPECIAL + BYTE_TOKENS)}
    for token in sorted(learned["vocab"], key=learned["vocab"].__getitem__):
        vocabulary.setdefault(token, len(vocabulary))
    merges = [tuple(merge) for merge in learned["merges"]]
    return models.BPE(vocabulary, merges, byte_fallback=True, unk_token=UNK)


def _wrap(backend: Tokenizer, tokenizer_class: type[FastTokenizer], **settings: Tokenizer) -> FastTokenizer:
    return tokenizer_class(
        tokenizer_object=backend,
        pad_token=PAD,
        eos_token=EOS,
        unk_token=UNK,
        model_input_names=["input_ids", "attention_mask"],
        clean_up_tokenization_spaces=False,
        split_special_tokens=True,
        **settings,
    )
