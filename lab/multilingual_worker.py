"""An engine on a model of NLLB-200's kind, in a process of its own, for `lab.multilingual`.

    python lab/multilingual_worker.py capsule_mt FOLDER
    PYTHON-WITH-CTRANSLATE2 lab/multilingual_worker.py ctranslate2 FOLDER
    PYTHON-WITH-CTRANSLATE2 lab/multilingual_worker.py convert FOLDER OUT    # a checkpoint becomes CTranslate2's

The first line of stdout has the seconds of processor time and the MiB that loading takes. Each line of stdin is a JSON
object: `sources` (token ids), `target` (the token of the target language), `num_beams`, `num_tokens` and `shortlist`,
how many tokens may be written, or null for all. Each answer has the processor time of this process so far, its MiB,
and how many tokens each translation has.
"""

import json
import os
import sys
import time
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any

END, SPECIAL = 2, ("<s>", "<pad>", "</s>", "<unk>")


def mib(field: str) -> float:
    """Return the memory of this process: "VmRSS" now, "VmHWM" at its peak."""
    return int(Path("/proc/self/status").read_text().split(f"{field}:")[1].split()[0]) / 1024


def token_text(index: int) -> str:
    return SPECIAL[index] if index < len(SPECIAL) else f"t{index}"


class FirstTokens:
    """A shortlist of the first `size` tokens, the same for every source, as a shortlist by script is."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.lists: dict[tuple[int, ...], array[int]] = {}

    def of_source(self, source: Sequence[int], *further: int) -> Sequence[int]:
        if further not in self.lists:
            self.lists[further] = array("i", sorted({*range(len(SPECIAL), self.size), *further}))
        return self.lists[further]


class Ours:
    def __init__(self, folder: str) -> None:
        from capsule_mt.engine.decoder import EngineDecoder
        from capsule_mt.engine.engine import Engine
        from capsule_mt.models.loading import open_checkpoint
        from capsule_mt.models.registry import write_program

        checkpoint = open_checkpoint(folder)
        program, _ = write_program(checkpoint.config, checkpoint.weights, checkpoint.origin)
        self.decoder = EngineDecoder(Engine(program, int8=True, num_threads=1), start=END, end=END, pad=1)
        self.shortlists: dict[int, FirstTokens] = {}

    def translate(self, request: dict[str, Any]) -> list[list[int]]:
        from capsule_mt.engine.search import SearchOptions

        sources, num_tokens, size = request["sources"], request["num_tokens"], request["shortlist"]
        options = SearchOptions(
            [num_tokens] * len(sources),
            num_beams=request["num_beams"],
            prefixes=[[request["target"]]] * len(sources),
            min_new_tokens=num_tokens,
            scores=False,
            shortlist=None if size is None else self.shortlists.setdefault(size, FirstTokens(size)),
        )
        return [ranked[0].ids for ranked in self.decoder.translate(sources, options)]


class CTranslate2:
    def __init__(self, folder: str) -> None:
        import ctranslate2

        options = {"compute_type": "int8", "inter_threads": 1, "intra_threads": 1}
        self.translator = ctranslate2.Translator(folder, **options)

    def translate(self, request: dict[str, Any]) -> list[list[str]]:
        sources, num_tokens = request["sources"], request["num_tokens"]
        results = self.translator.translate_batch(
            [list(map(token_text, source)) for source in sources],
            target_prefix=[[token_text(request["target"])]] * len(sources),
            beam_size=request["num_beams"],
            max_decoding_length=num_tokens,
            min_decoding_length=num_tokens,
        )
        return [result.hypotheses[0] for result in results]


def convert(folder: str, out: str) -> None:
    """Write a checkpoint of M2M100's kind for CTranslate2 in int8, with a vocabulary of `token_text`s."""
    from ctranslate2.converters import transformers as converters

    class Tokenizer:
        bos_token, pad_token, eos_token, unk_token = SPECIAL
        bos_token_id, pad_token_id, eos_token_id, unk_token_id = range(4)
        special_tokens_map: dict[str, str] = {}
        num_madeup_words = 0

        def convert_ids_to_tokens(self, index: int) -> str:
            return token_text(index)

    class Converter(converters.TransformersConverter):
        def load_tokenizer(self, *arguments: Any, **options: Any) -> Tokenizer:
            return Tokenizer()

    loader = converters._MODEL_LOADERS["M2M100Config"]
    loader.get_vocabulary = lambda model, tokenizer: [token_text(index) for index in range(model.config.vocab_size)]
    Converter(folder, low_cpu_mem_usage=True).convert(out, quantization="int8", force=True)


def main() -> None:
    kind, folder, *further = sys.argv[1:]
    if kind == "convert":
        convert(folder, *further)
        return
    start_mib, started = mib("VmRSS"), time.process_time()
    engine: Any = {"capsule_mt": Ours, "ctranslate2": CTranslate2}[kind](folder)
    loaded: dict[str, Any] = {"seconds": time.process_time() - started}
    loaded |= {"mib": mib("VmRSS") - start_mib, "peak_mib": mib("VmHWM") - start_mib}
    if kind == "ctranslate2":
        from importlib.metadata import version

        loaded["version"] = version("ctranslate2")
    print(json.dumps(loaded), flush=True)
    for line in sys.stdin:
        translations = engine.translate(json.loads(line))
        answer = {"seconds": time.process_time(), "lengths": list(map(len, translations))}
        print(json.dumps(answer | {"mib": mib("VmRSS") - start_mib, "peak_mib": mib("VmHWM") - start_mib}), flush=True)


if __name__ == "__main__":
    os.environ["OMP_NUM_THREADS"] = "1"
    main()
