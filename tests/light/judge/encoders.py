"""A small encoder without torch, in which a word is near itself and far from others: what a judge needs."""

import json
import random
from array import array
from pathlib import Path

from tokenizers import Tokenizer, models, pre_tokenizers, processors

from capsule_mt.models.weights import write_safetensors

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
WORDS = tuple(f"{first}{second}{third}" for first in "bdfgk" for second in "aeiou" for third in "lmnr")
WIDTH, HEADS, INNER, LAYERS, POSITIONS = 24, 3, 32, 2, 40


def write_encoder(folder: Path, seed: int = 0, num_layers: int = LAYERS) -> Path:
    """Write a BERT with random weights, whose layers change its embeddings little."""
    folder.mkdir(parents=True, exist_ok=True)
    generator = random.Random(seed)
    vocabulary = {token: index for index, token in enumerate((*SPECIAL, *WORDS, "##s"))}
    shapes = {
        "embeddings.word_embeddings.weight": (len(vocabulary), WIDTH, 1.0),
        "embeddings.position_embeddings.weight": (POSITIONS, WIDTH, 0.1),
        "embeddings.token_type_embeddings.weight": (2, WIDTH, 0.1),
    }
    vectors = {"embeddings.LayerNorm": WIDTH}
    for layer in range(num_layers):
        name = f"encoder.layer.{layer}"
        sizes = {
            **{f"attention.self.{part}": (WIDTH, WIDTH) for part in ("query", "key", "value")},
            "attention.output.dense": (WIDTH, WIDTH),
            "intermediate.dense": (INNER, WIDTH),
            "output.dense": (WIDTH, INNER),
        }
        for module, (outputs, inputs) in sizes.items():
            shapes[f"{name}.{module}.weight"] = (outputs, inputs, 0.05)
            vectors[f"{name}.{module}"] = outputs
        vectors |= {f"{name}.{norm}.LayerNorm": WIDTH for norm in ("attention.output", "output")}
    tensors = {
        name: ((rows, columns), array("f", [generator.gauss(0, scale) for _ in range(rows * columns)]))
        for name, (rows, columns, scale) in shapes.items()
    }
    for name, size in vectors.items():
        tensors[f"{name}.bias"] = (size,), array("f", bytes(4 * size))
        if name.endswith("LayerNorm"):
            tensors[f"{name}.weight"] = (size,), array("f", [1.0] * size)
    layouts = {name: ("F32", shape) for name, (shape, _) in tensors.items()}
    write_safetensors(folder / "model.safetensors", layouts, lambda name: tensors[name][1].tobytes(), {"format": "pt"})
    config = {
        "model_type": "bert",
        "vocab_size": len(vocabulary),
        "hidden_size": WIDTH,
        "num_hidden_layers": num_layers,
        "num_attention_heads": HEADS,
        "intermediate_size": INNER,
        "max_position_embeddings": POSITIONS,
    }
    (folder / "config.json").write_text(json.dumps(config))
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    tokenizer.add_special_tokens([*SPECIAL])
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def sentence(generator: random.Random, length: int) -> list[str]:
    return generator.sample(WORDS, length)
