"""Train subword tokenizers that transformers loads like any other."""

import json
from collections.abc import Iterable
from typing import Any, Literal, TypeVar

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from hf_capsule_mt.data.separate_tokenizer import SeparateVocabulariesTokenizer

PAD, EOS, UNK = "<pad>", "</s>", "<unk>"
SPACE = "▁"
BYTE_TOKENS = [f"<0x{byte:02X}>" for byte in range(256)]
# A space becomes "▁", so escape a "▁" of the text as this character and "1", and the character itself as it and "0"
ESCAPE = "\uf8ff"
PRINTABLE = [chr(code) for code in range(33, 127)]
NEVER = -1e4  # score of unigram pieces that segmentation must never choose

SubwordModel = Literal["bpe", "unigram"]
FastTokenizer = TypeVar("FastTokenizer", bound=PreTrainedTokenizerFast)


def train_tokenizer(
    texts: Iterable[str], vocab_size: int, model: SubwordModel = "bpe", *, show_progress: bool = False
) -> PreTrainedTokenizerFast:
    """Train a tokenizer for NFKC-normalised text with UTF-8 bytes as the fallback for unseen characters.

    Train it on both sides of the parallel text for a joint vocabulary. Ids: 0 is `<pad>`, which also starts the
    decoder, 1 is `</s>`, which ends every text, 2 is `<unk>`, then come the 256 bytes. Special tokens that occur in a
    text are encoded as text.

    Args:
        vocab_size: the number of tokens, specials and bytes included; fewer if the text does not yield as many.
        model: "bpe" merges pairs (Sennrich et al. 2016), "unigram" takes the likeliest pieces (Kudo 2018).
    """
    return _wrap(train_backend(texts, vocab_size, model, show_progress=show_progress), PreTrainedTokenizerFast)


def train_separate_tokenizers(
    source_texts: Iterable[str],
    target_texts: Iterable[str],
    vocab_size: int,
    target_vocab_size: int | None = None,
    model: SubwordModel = "bpe",
    *,
    show_progress: bool = False,
) -> SeparateVocabulariesTokenizer:
    """Train one tokenizer with a source and a target vocabulary, each as `train_tokenizer` trains it."""
    source = train_backend(source_texts, vocab_size, model, show_progress=show_progress)
    target = train_backend(target_texts, target_vocab_size or vocab_size, model, show_progress=show_progress)
    return _wrap(source, SeparateVocabulariesTokenizer, target_tokenizer_object=target)


def train_backend(
    texts: Iterable[str], vocab_size: int, model: SubwordModel = "bpe", *, show_progress: bool = False
) -> Tokenizer:
    """Train the tokenizer as an object of the library `tokenizers`."""
    special = [PAD, EOS, UNK]
    if model not in ("bpe", "unigram"):
        raise ValueError(f'`model` must be "bpe" or "unigram", got {model!r}')
    smallest = len(special) + len(BYTE_TOKENS) + (len(PRINTABLE) if model == "unigram" else 0)
    if vocab_size < smallest:
        raise ValueError(f"`vocab_size` must be at least {smallest}, got {vocab_size}")
    tokenizer = Tokenizer(models.BPE(unk_token=UNK) if model == "bpe" else models.Unigram())
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
    settings: dict[str, Any] = {
        "vocab_size": vocab_size - len(BYTE_TOKENS),
        "special_tokens": special,
        "show_progress": show_progress,
    }
    if model == "bpe":
        tokenizer.train_from_iterator(texts, trainers.BpeTrainer(**settings, limit_alphabet=1000))
        tokenizer.model = _bpe_with_bytes(tokenizer, special)
    else:
        tokenizer.train_from_iterator(texts, trainers.UnigramTrainer(**settings, unk_token=UNK))
        tokenizer.model = _unigram_with_bytes(tokenizer, special, vocab_size)
    tokenizer.add_special_tokens(special)
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
        single=f"$A {EOS}", pair=f"$A {EOS} $B {EOS}", special_tokens=[(EOS, special.index(EOS))]
    )
    return tokenizer


def _bpe_with_bytes(tokenizer: Tokenizer, special: list[str]) -> models.BPE:
    """Add the bytes to the vocabulary as plain tokens, because decoding skips special ones."""
    learned = json.loads(tokenizer.to_str())["model"]
    vocabulary = {token: index for index, token in enumerate(special + BYTE_TOKENS)}
    for token in sorted(learned["vocab"], key=learned["vocab"].__getitem__):
        vocabulary.setdefault(token, len(vocabulary))
    merges = [tuple(merge) for merge in learned["merges"]]
    return models.BPE(vocabulary, merges, byte_fallback=True, unk_token=UNK)


def _unigram_with_bytes(tokenizer: Tokenizer, special: list[str], vocab_size: int) -> models.Unigram:
    """Add the bytes to a unigram model without letting it find their names, or special tokens, in a text.

    A score below all others prevents that, because the characters of these names are all pieces themselves.
    """
    learned = dict(json.loads(tokenizer.to_str())["model"]["vocab"])
    lowest = min(learned.values())
    pieces = dict.fromkeys(special + BYTE_TOKENS, NEVER) | {
        character: learned.get(character, lowest - 1) for character in PRINTABLE
    }
    for piece in sorted(learned, key=lambda piece: -learned[piece]):
        if len(pieces) == vocab_size:
            break
        pieces.setdefault(piece, learned[piece])
    return models.Unigram(list(pieces.items()), unk_id=special.index(UNK), byte_fallback=True)


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
