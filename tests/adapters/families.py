"""Tiny random models of the families that an adapter is tried on, and batches for them."""

from typing import Any

import torch
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    BartConfig,
    BigBirdPegasusConfig,
    CTRLConfig,
    FSMTConfig,
    GPT2Config,
    LEDConfig,
    LlamaConfig,
    M2M100Config,
    MambaConfig,
    MarianConfig,
    MBartConfig,
    OPTConfig,
    PegasusConfig,
    PersimmonConfig,
    PhiConfig,
    ProphetNetConfig,
    Qwen2Config,
    T5Config,
)

VOCAB_SIZE, WIDTH, LAYERS = 120, 32, 3
SIZES: dict[str, Any] = {
    "vocab_size": VOCAB_SIZE,
    "d_model": WIDTH,
    "encoder_layers": LAYERS,
    "decoder_layers": LAYERS,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "max_position_embeddings": 64,
    "pad_token_id": 1,
    "bos_token_id": 0,
    "eos_token_id": 2,
    "decoder_start_token_id": 2,
    "forced_eos_token_id": None,
    "init_std": 0.3,
}
CAUSAL: dict[str, Any] = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": WIDTH,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 64,
    "pad_token_id": 1,
}
T5: dict[str, Any] = {
    "vocab_size": VOCAB_SIZE,
    "d_model": WIDTH,
    "d_kv": 8,
    "d_ff": 64,
    "num_layers": LAYERS,
    "num_decoder_layers": LAYERS,
    "num_heads": 4,
    "pad_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 1,
    "feed_forward_proj": "gated-gelu",
    "tie_word_embeddings": False,
}
GPT2: dict[str, Any] = {
    "vocab_size": VOCAB_SIZE,
    "n_embd": WIDTH,
    "n_layer": LAYERS,
    "n_head": 4,
    "n_positions": 64,
    "pad_token_id": 1,
    "bos_token_id": 0,
    "eos_token_id": 2,
}
CONFIGS = {
    "marian": lambda: MarianConfig(**{**SIZES, "decoder_start_token_id": 1}),
    "bart": lambda: BartConfig(**SIZES),
    "mbart": lambda: MBartConfig(**SIZES),
    "m2m_100": lambda: M2M100Config(**SIZES, encoder_layerdrop=0.05, decoder_layerdrop=0.05),
    "pegasus": lambda: PegasusConfig(**SIZES),
    "t5": lambda: T5Config(**T5),
    "llama": lambda: LlamaConfig(**CAUSAL),
    "qwen2": lambda: Qwen2Config(**CAUSAL),
    "gpt2": lambda: GPT2Config(**GPT2),
}
# families whose stack ends with a norm of another name
OTHER_NORMS = {
    "phi": lambda: PhiConfig(**{**CAUSAL, "num_key_value_heads": 4}),
    "persimmon": lambda: PersimmonConfig(**CAUSAL),
    "ctrl": lambda: CTRLConfig(vocab_size=VOCAB_SIZE, n_embd=WIDTH, dff=64, n_layer=LAYERS, n_head=4, n_positions=64),
    "bigbird_pegasus": lambda: BigBirdPegasusConfig(**SIZES, attention_type="original_full"),
    "mamba": lambda: MambaConfig(vocab_size=VOCAB_SIZE, hidden_size=WIDTH, state_size=4, num_hidden_layers=2),
}
# families whose stack ends with something else, and what it is
OTHER_ENDS = {
    # without the padding to its window
    "led": lambda: LEDConfig(**{**SIZES, "attention_window": 4, "max_encoder_position_embeddings": 64}),
    # a map to the embedding's width
    "opt": lambda: OPTConfig(**CAUSAL, ffn_dim=64, word_embed_proj_dim=16, do_layer_norm_before=False),
    # one stream of several
    "prophetnet": lambda: ProphetNetConfig(
        vocab_size=VOCAB_SIZE,
        hidden_size=WIDTH,
        num_encoder_layers=2,
        num_decoder_layers=2,
        num_encoder_attention_heads=4,
        num_decoder_attention_heads=4,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
    ),
    "fsmt": lambda: FSMTConfig(**{**SIZES, "src_vocab_size": VOCAB_SIZE, "tgt_vocab_size": VOCAB_SIZE}),
}
ALL_CONFIGS = CONFIGS | OTHER_NORMS | OTHER_ENDS


def build(family: str) -> Any:
    """The same model at each call."""
    torch.manual_seed(0)
    config = ALL_CONFIGS[family]()
    auto_class = AutoModelForSeq2SeqLM if config.is_encoder_decoder else AutoModelForCausalLM
    model = auto_class.from_config(config).eval()
    # a token that ends no sentence: generation is compared over all steps
    model.generation_config.eos_token_id = None
    return model


def batch(family: str) -> dict[str, torch.Tensor]:
    """Three sentences; those of an encoder are padded on the right."""
    generator = torch.Generator().manual_seed(1)
    input_ids = torch.randint(3, VOCAB_SIZE, (3, 9), generator=generator)
    mask = torch.ones_like(input_ids)
    if not ALL_CONFIGS[family]().is_encoder_decoder:
        return {"input_ids": input_ids, "attention_mask": mask, "labels": input_ids}
    mask[1, -3:] = 0
    input_ids = input_ids.masked_fill(mask == 0, 1)
    labels = torch.randint(3, VOCAB_SIZE, (3, 7), generator=generator)
    return {"input_ids": input_ids, "attention_mask": mask, "labels": labels}
