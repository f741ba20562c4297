"""A model as one file for the browser: its program in int8, its tokenizer, and how it translates.

It is a safetensors file, which model_file.js reads. Its metadata has `model`, a JSON object with the program and the
settings, and `tokenizers`, a list with tokenizer.json and, if each language has its own, target_tokenizer.json. Some
values are tensors, because gzip, by which a server may send the file, then packs them better:

- the scores of a Unigram tokenizer: `vocab` has its texts, and `scores` the name of a F32 tensor; or numbers, if these
  are not of single precision.
- SentencePiece's map of characters: `precompiled_charsmap` is the name of a U8 tensor, not base64.
- a shortlist: `lengths`, I32, of each source token's list, and `differences`, U8 [bytes of a number, tokens]: of each
  token from the one before in its ascending list, or from 0. First come the low bytes of all differences. `frequent`,
  I32, has the tokens that every translation may have.
"""

import base64
import json
import os
from array import array
from collections.abc import Iterator, Sequence
from itertools import pairwise
from operator import sub
from typing import Any

from capsule_mt.coverage.methods import Calibration
from capsule_mt.coverage.piece_coverage import CALIBRATED_THRESHOLD
from capsule_mt.engine.library import rounded, widened
from capsule_mt.engine.program import Codes, Linear, Positions, Program, Tensor, UnsupportedModelError
from capsule_mt.models.checkpoint_tokenizer import CLEAN_UP
from capsule_mt.models.entropy_coding import coded
from capsule_mt.models.languages import many_languages
from capsule_mt.models.loading import load_model, open_checkpoint
from capsule_mt.models.model import LoadedModel
from capsule_mt.models.registry import write_program
from capsule_mt.models.shortlist import Shortlist
from capsule_mt.models.weights import write_safetensors
from capsule_mt.options.table import offered
from capsule_mt.text.tokenizer_protocol import Tokenizer
from capsule_mt.translate.search_plan import limit_of_checkpoint, search_options
from capsule_mt.web.language import numbers_of, sentence_rules, typography_of, words_of_checks

FORMAT = 5
MODEL_FILE = "model.capsule"
NamedTensors = Iterator[tuple[str, Tensor]]


def write_web(folder: str | os.PathLike[str], file: str | os.PathLike[str], source: str, target: str) -> None:
    """Write the model in a folder as one file.

    Args:
        source, target: the codes of its languages.

    Raises:
        UnsupportedModelError: a model that JavaScript cannot run, by name. Tokenizers are checked there.
        CheckpointError: a damaged checkpoint.
    """
    folder = os.fspath(folder)
    checkpoint = open_checkpoint(folder)
    model = load_model(folder, int8=True, shortlist=checkpoint.has_shortlist)  # checks every file
    _check_is_one_pair(folder, model.tokenizer)
    tokenizers = checkpoint.tokenizer_jsons()
    program, _ = write_program(checkpoint.config, checkpoint.weights, checkpoint.origin)
    description = {
        "format": FORMAT,
        "languages": [source, target],
        "program": _program(program),
        "tokens": {"start": model.start, "end": model.end, "pad": model.pad},
        "tokenizer": _tokenizer(model),
        "search": _search(model),
        "sentences": sentence_rules(source),
        "coverage": _coverage(model),
        "checks": words_of_checks(source, target),
        "typography": typography_of(target),
        "numbers": numbers_of(source, target),
    }
    tensors = dict([*_tensors(program), *shortlist_tensors(model.shortlist)])
    tokenizers = with_tensors(tokenizers, tensors)
    shapes = {name: (tensor.dtype, tensor.shape) for name, tensor in tensors.items()}
    metadata = {"model": json.dumps(description), "tokenizers": json.dumps(tokenizers)}
    write_safetensors(file, shapes, lambda name: tensors[name].buffer, metadata)


def check_is_one_pair(folder: str | os.PathLike[str]) -> None:
    """Raise an `UnsupportedModelError` if the model in a folder translates many languages."""
    folder = os.fspath(folder)
    _check_is_one_pair(folder, open_checkpoint(folder).read_tokenizer())


def _check_is_one_pair(folder: str, tokenizer: Tokenizer) -> None:
    if many_languages(tokenizer) is not None:
        raise UnsupportedModelError(f"{folder}: translates many languages; only models of one pair run in the browser")
    if tokenizer.language_tokens:
        raise UnsupportedModelError(
            f"{folder}: has tokens of languages, such as {tokenizer.language_tokens[0]}; only models of one pair run "
            "in the browser"
        )


def _program(program: Program) -> dict[str, Any]:
    """Return a program as plain values, without its tensors."""
    return {
        "vocabulary": program.vocabulary,
        "num_caches": program.num_caches,
        "linears": [[program.outputs(index), parts[0].inputs] for index, parts in enumerate(program.linears)],
        "vectors": [_kind(program, index) for index in range(len(program.vectors))],
        "buffers": [[int(space), width] for space, width in program.buffers],
        "encoder": [[operation.kind.name, *operation.slots] for operation in program.encoder],
        "decoder": [[operation.kind.name, *operation.slots] for operation in program.decoder],
        "logits": program.logits,
    }


def _kind(program: Program, index: int) -> list[Any]:
    """Return the kind of a vector and its sizes; "packed" is the weight of a linear map, stored with it."""
    vector, width = program.vectors[index], program.table_widths.get(index)
    if isinstance(vector, Positions):
        return ["positions", vector.count // vector.width, vector.width, vector.span, vector.start]
    if (
        vector.packed is not None
        and isinstance(vector.packed.read()[0], Codes)
        and (vector.packed,) in program.linears
    ):
        return ["packed", program.linears.index((vector.packed,))]
    return ["vector", vector.count] if width is None else ["table", vector.count // width, width]


def _tensors(program: Program) -> NamedTensors:
    """Yield the weights of a program by index.

    Matrices are entropy-coded int8, and so are tables if the checkpoint has them in int8; other tables keep their
    dtype. Other numbers are F32.
    """
    for index, parts in enumerate(program.linears):
        yield from _linear_tensors(f"linears.{index}", parts)
    for index, vector in enumerate(program.vectors):
        kind = _kind(program, index)[0]
        if isinstance(vector, Positions) or kind == "packed":
            continue
        values, name = vector.read(), f"vectors.{index}"
        if isinstance(values, Codes) and kind == "table":
            yield from _code_tensors(name, [values])
        else:
            yield name, values if isinstance(values, Tensor) and kind == "table" else widened(values)


def _linear_tensors(name: str, parts: Sequence[Linear]) -> NamedTensors:
    read = [part.read() for part in parts]
    yield from _code_tensors(name, [rounded(weight) for weight, _ in read])
    if any(bias is not None for _, bias in read):
        zeros = (Tensor(bytes(2 * part.outputs), "F16", (part.outputs,)) for part in parts)
        biases = [zero if bias is None else bias for zero, (_, bias) in zip(zeros, read, strict=True)]
        in_half = all(bias.dtype == "F16" for bias in biases)
        yield f"{name}.bias", _concatenated(biases if in_half else [widened(bias) for bias in biases])


def _code_tensors(name: str, codes: Sequence[Codes]) -> NamedTensors:
    stacked = (_concatenated([getattr(matrix, field) for matrix in codes]) for field in Codes._fields)
    yield from ((f"{name}.{part}", tensor) for part, tensor in coded(Codes(*stacked)).items())


def _concatenated(tensors: Sequence[Tensor]) -> Tensor:
    """Return the rows of all tensors as one tensor."""
    first = tensors[0]
    rows = sum(tensor.shape[0] for tensor in tensors)
    return Tensor(b"".join(bytes(tensor.buffer) for tensor in tensors), first.dtype, (rows, *first.shape[1:]))


def shortlist_tensors(shortlist: Any) -> NamedTensors:
    """Yield the tensors of a shortlist, if there is one: see above."""
    if not isinstance(shortlist, Shortlist):
        return
    lengths, differences = array("i"), array("i")
    for start, end in pairwise(shortlist.starts):
        tokens = sorted(shortlist.tokens[start:end])
        lengths.append(len(tokens))
        differences.extend(map(sub, tokens, [0, *tokens]))
    width = max(1, (max(differences, default=0).bit_length() + 7) // 8)
    planes = (bytes(difference >> 8 * byte & 0xFF for difference in differences) for byte in range(width))
    yield "shortlist.lengths", Tensor(lengths, "I32", (len(lengths),))
    yield "shortlist.differences", Tensor(b"".join(planes), "U8", (width, len(differences)))
    yield "shortlist.frequent", Tensor(shortlist.frequent, "I32", (len(shortlist.frequent),))


def with_tensors(value: Any, tensors: dict[str, Tensor]) -> Any:
    """Return a value of a tokenizer.json with the names of tensors, which this adds to `tensors`: see above."""
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return [with_tensors(item, tensors) for item in value]
    if not isinstance(value, dict):
        return value
    name = f"tokenizers.{len(tensors)}"
    if isinstance(value.get("precompiled_charsmap"), str):
        content = base64.b64decode(value["precompiled_charsmap"])
        tensors[name] = Tensor(content, "U8", (len(content),))
        return {**value, "precompiled_charsmap": name}
    if value.get("type") == "Unigram":
        scores = [score for _, score in value["vocab"]]
        numbers = array("f", scores)
        is_single = list(numbers) == scores
        if is_single:
            tensors[name] = Tensor(numbers, "F32", (len(numbers),))
        return {**value, "vocab": [text for text, _ in value["vocab"]], "scores": name if is_single else scores}
    return {key: with_tensors(item, tensors) for key, item in value.items()}


def _search(model: LoadedModel) -> dict[str, Any]:
    """Return the defaults of a search."""
    options = search_options(model, [1], {})
    if options.transformers_only:
        raise UnsupportedModelError(
            f"{model.name}: its settings {', '.join(options.transformers_only)} do not work in the browser"
        )
    return {
        "options": {option.name: getattr(options, option.name) for option in offered("browser")},
        "longest_source": model.longest_source,
        "longest_target": limit_of_checkpoint(model),
        "length_factor": model.length_factor,
        "forces_end": model.generation.get("forced_eos_token_id") in (model.end, [model.end]),
        "shortlist_multiple": model.shortlist.multiple if isinstance(model.shortlist, Shortlist) else None,
    }


def _tokenizer(model: LoadedModel) -> dict[str, Any]:
    return {
        "unknown": model.tokenizer.unknown_id,
        "special": sorted(model.tokenizer.special_ids),
        "clean_up": list(CLEAN_UP) if getattr(model.tokenizer, "cleans_up", False) else [],
    }


def _coverage(model: LoadedModel) -> dict[str, Any] | None:
    """Return the head, the curves and the words of coverage by attention; `None` without head or curves."""
    calibration = Calibration.of_config(model.calibration)
    if calibration.head is None or "words" not in calibration.methods["attention"]:
        return None
    return {
        **calibration.methods["attention"],
        "threshold": calibration.methods["attention"].get("threshold", CALIBRATED_THRESHOLD),
        "alarm": calibration.alarm("attention"),
        "marks_single_words": calibration.marks_single_words,
        "optional_words": sorted(calibration.lists.optional),
        "function_words": sorted(calibration.lists.function),
        "optional_targets": sorted(calibration.support.get("optional_words", ())),
    }
