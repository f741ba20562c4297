"""Tokenizers of many languages, such as NLLB's: the languages of a recipe are then two of their codes."""

from transformers import PreTrainedTokenizerBase


def set_languages(tokenizer: PreTrainedTokenizerBase, source: str, target: str) -> None:
    """Let a tokenizer of many languages read these two; change no other. Raise a `ValueError` for unknown codes."""
    if not hasattr(tokenizer, "_build_translation_inputs"):
        return
    name, example = type(tokenizer).__name__, tokenizer.src_lang
    tokens = {}
    for side, language in (("source", source), ("target", target)):
        tokens[side] = _token_of(tokenizer, language)
        if tokens[side] is None:
            raise ValueError(
                f"`languages.{side}` must be a code of {name}, such as {example!r}, got {language!r}: name the "
                "columns of the data by `columns`"
            )
    tokenizer.src_lang, tokenizer.tgt_lang = source, target
    if first_token(tokenizer)["forced_bos_token_id"] != tokens["target"]:
        raise ValueError(f"a {name} does not begin translations with their language, which `capsule-mt train` needs")


def first_token(tokenizer: PreTrainedTokenizerBase) -> dict[str, int]:
    """Return the setting of `generate()` by which translations begin with their language, if labels do."""
    if not hasattr(tokenizer, "_build_translation_inputs"):
        return {}
    return {"forced_bos_token_id": tokenizer(text_target="")["input_ids"][0]}


def _token_of(tokenizer: PreTrainedTokenizerBase, language: str) -> int | None:
    try:
        inputs = tokenizer._build_translation_inputs("", return_tensors=None, src_lang=language, tgt_lang=language)
    except KeyError:
        return None
    token = inputs["forced_bos_token_id"]
    return None if token in (None, tokenizer.unk_token_id) else int(token)
