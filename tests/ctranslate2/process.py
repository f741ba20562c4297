"""The process that has CTranslate2: it reads a job from each line in JSON, and prints the result in JSON.

Jobs: `build` writes the model of a variant (see variants.py) with random weights, as the layers of OpenNMT-py, or
converts a checkpoint of transformers; `translate` and `score` ask CTranslate2 itself.
"""

import json
import math
import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ctranslate2
import numpy as np
from ctranslate2.specs import common_spec, model_spec, transformer_spec

HEADS, POSITIONS, DEPTHS = 4, 160, (2, 2)
SPECIAL = ["<unk>", "<s>", "</s>", "<blank>"]


def build(folder: str, pieces: list[str], spec: dict[str, Any], config: dict[str, Any], **options: Any) -> None:
    """Write the model of a variant.

    Args:
        pieces: the tokens after `special` of `options`.
        spec: arguments of `TransformerSpec.from_config`; `alibi` and `rotary_dim` are of the decoder's.
        config: fields of config.json.
        options: those of variants.py.
    """
    tokens = [*options.get("special", SPECIAL), *pieces]
    sizes = [options.get("source_size", len(tokens)), len(tokens)]
    model = _spec_of(spec, options.get("heads", HEADS), options.get("depths", DEPTHS))
    generator = np.random.default_rng(options.get("seed", 1))
    fill = _Filler(generator, sizes, options, model)
    model_spec.visit_spec(model, fill)
    if options.get("tied", True):
        model.decoder.projection.weight = model.decoder.embeddings.weight
    if options.get("shared", True):
        model.encoder.embeddings[0].weight = model.decoder.embeddings.weight
    for name, value in options.get("settings", {}).items():
        owner = model_spec.index_spec(model, name.rpartition("/")[0]) if "/" in name else model
        setattr(owner, name.rpartition("/")[2], np.dtype("float32").type(value) if type(value) is float else value)
    for _ in model.encoder.embeddings:
        model.register_source_vocabulary(tokens[: sizes[0]])
    model.register_target_vocabulary(tokens)
    for name, value in config.items():
        setattr(model.config, name, value)
    model.validate()
    model.optimize(options.get("quantization"))
    os.makedirs(folder, exist_ok=True)
    model.save(folder)


def _spec_of(spec: dict[str, Any], heads: int, depths: Sequence[int]) -> transformer_spec.TransformerSpec:
    of_decoder = {name: spec[name] for name in ("alibi", "rotary_dim") if name in spec}
    shared = {name: value for name, value in spec.items() if name not in of_decoder}
    shared["activation"] = common_spec.Activation(shared.get("activation", 0))
    if not of_decoder:
        return transformer_spec.TransformerSpec.from_config(tuple(depths), heads, **shared)
    encoder = transformer_spec.TransformerEncoderSpec(depths[0], heads, **shared)
    return transformer_spec.TransformerSpec(
        encoder, transformer_spec.TransformerDecoderSpec(depths[1], heads, **shared, **of_decoder)
    )


class _Filler:
    """Sets the weights of a specification: large ones, so that few tokens are nearly as probable as the best."""

    def __init__(self, generator: Any, sizes: list[int], options: dict[str, Any], model: Any) -> None:
        self._generator, self._sizes, self._options, self._model = generator, sizes, options, model
        self._width, self._inner = options.get("width", 32), options.get("inner", 48)
        self._positions, self._heads = options.get("num_positions", POSITIONS), options.get("heads", HEADS)

    def __call__(self, spec: Any, name: str, value: Any) -> None:
        *scope, attribute = name.split("/")
        shape = self._shape(scope, attribute)
        if value is None or (shape is not None and attribute in ("bias", "encodings") and self._has(scope, attribute)):
            setattr(spec, attribute, self._numbers(shape, attribute))

    def _has(self, scope: list[str], attribute: str) -> bool:
        if attribute == "encodings":
            return bool(self._options.get("positions", True))
        return bool(self._options.get("biases", True)) or "attention" not in scope[-2]

    def _numbers(self, shape: tuple[int, ...] | None, attribute: str) -> Any:
        assert shape is not None, attribute
        if attribute == "relative_attention_max_distance":
            return np.dtype("int32").type(8)
        if attribute == "gamma":
            return self._generator.uniform(0.5, 1.5, shape).astype(np.float32)
        if attribute in ("beta", "bias"):
            return (0.2 * self._generator.standard_normal(shape)).astype(np.float32)
        scale = 1.0 if attribute == "encodings" else 1.6 / math.sqrt(shape[-1])
        return (scale * self._generator.standard_normal(shape)).astype(np.float32)

    def _shape(self, scope: list[str], attribute: str) -> tuple[int, ...] | None:
        if attribute in ("gamma", "beta"):
            return (self._width,)
        if attribute == "encodings":
            return (self._positions, self._width)
        if attribute.startswith("relative_position"):
            return (17, self._width // self._heads)
        if attribute.startswith("relative_attention"):
            return (8, self._heads)
        if attribute not in ("weight", "bias") or not scope:
            return None
        rows, columns = self._matrix(scope)
        return (rows, columns) if attribute == "weight" else (rows,)

    def _matrix(self, scope: list[str]) -> tuple[int, int]:
        if scope[-1].startswith("embeddings") or scope[-1] == "projection":
            return self._sizes[scope[0] == "decoder"], self._width
        if "ffn" in scope:
            return (self._width, self._inner) if scope[-1] == "linear_1" else (self._inner, self._width)
        stacks = {"self_attention": (3, 1), "attention": (1, 2, 1)}[scope[-2]]
        if getattr(self._model.encoder, "multi_query_attention", False) and scope[-1] == "linear_0":
            return (self._width + 2 * self._width // self._heads, self._width)
        return stacks[int(scope[-1].rpartition("_")[2])] * self._width, self._width


def convert(checkpoint: str, folder: str, quantization: str | None, copied: list[str]) -> None:
    """Convert a checkpoint of transformers.

    CTranslate2 4.8.5 misses the languages of an M2M100 under transformers 5, which renamed a field; they are listed
    here as it lists them under transformers 4.
    """
    from ctranslate2.converters import TransformersConverter
    from ctranslate2.converters.transformers import M2M100Loader

    def vocabulary(_: Any, model: Any, tokenizer: Any) -> list[str]:
        tokens = tokenizer.convert_ids_to_tokens(range(model.config.vocab_size))
        count = next(index for index in range(len(tokens), 0, -1) if tokens[index - 1] != tokenizer.unk_token)
        return [*tokens[:count], *(f"madeupword{index}" for index in range(len(tokens) - count))]

    if "M2M100Tokenizer" in Path(checkpoint, "tokenizer_config.json").read_text("utf-8"):
        M2M100Loader.get_vocabulary = vocabulary
    TransformersConverter(checkpoint, copy_files=copied).convert(folder, quantization=quantization, force=True)


def convert_marian(checkpoint: str, vocabularies: list[str], folder: str, quantization: str | None) -> None:
    """Convert a model of Marian, whose options the converter expects to end with one zero."""
    from ctranslate2.converters import MarianConverter

    weights, options = dict(np.load(checkpoint)), "special:model.yml"
    weights[options] = np.frombuffer(weights[options].tobytes().rstrip(b"\0") + b"\0", dtype=np.int8)
    checkpoint = f"{folder}.npz"
    np.savez(checkpoint, **weights)
    MarianConverter(checkpoint, vocabularies).convert(folder, quantization=quantization, force=True)


def translate(folder: str, sources: list[list[str]], compute_type: str = "float32", **options: Any) -> list[Any]:
    """Return the tokens and the score of each source's translations."""
    translator = ctranslate2.Translator(folder, compute_type=compute_type, intra_threads=1)
    results = translator.translate_batch(sources, return_scores=True, max_batch_size=32, **options)
    return [[result.hypotheses, result.scores] for result in results]


def score(
    folder: str, sources: list[list[str]], targets: list[list[str]], compute_type: str = "float32"
) -> list[list[float]]:
    """Return the log-probabilities of the tokens of each target, and of its end."""
    translator = ctranslate2.Translator(folder, compute_type=compute_type, intra_threads=1)
    results = translator.score_batch(sources, targets, max_batch_size=32)
    return [result.log_probs for result in results]


def main() -> None:
    functions = {function.__name__: function for function in (build, convert, convert_marian, translate, score)}
    for line in sys.stdin:
        job = json.loads(line)
        try:
            answer = {"result": functions[job.pop("do")](**job)}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}", "traceback": traceback.format_exc()}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    sys.path[:] = [path for path in sys.path if Path(path or ".").resolve() != Path(__file__).parent]
    main()
