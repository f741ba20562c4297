"""Writes tests/fixtures/ctranslate2: `python -m tests.ctranslate2.fixtures` (needs CTranslate2, see judge.py)."""

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

from tests.ctranslate2.judge import Judge, cut, pieces
from tests.ctranslate2.variants import MARIAN
from tests.fixtures.ctranslate2 import FIXTURES, LIMIT, SOURCES, TARGETS, VOCABULARIES

SIZES = {"width": 16, "inner": 24, "num_positions": 48}
LANGUAGES = {"special": ["<s>", "<pad>", "</s>", "<unk>"], "config": {"decoder_start_token": "</s>"}}
# each has the first pieces of the vocabulary, so that texts have unknown tokens
MODELS: dict[str, dict[str, Any]] = {
    "opennmt": {"quantization": "int8"},
    "marian": {**MARIAN, "quantization": "int16", "shared": False, "source_size": 180},
    "nllb": {**LANGUAGES, "quantization": "float16"},
}
ENDS = {"opennmt": ((), ()), "marian": ((), ()), "nllb": (("deu_Latn",), ("</s>",))}


def write(name: str, judge: Judge) -> None:
    """Write a model and what CTranslate2 says of it."""
    folder = FIXTURES / name
    tokens = pieces()[:200] + (["deu_Latn", "eng_Latn", "fra_Latn", "<mask>"] if name == "nllb" else [])
    with tempfile.TemporaryDirectory() as temporary:
        built = judge.build(Path(temporary, name), tokens, **SIZES, **MODELS[name])
        before, after = ENDS[name]
        sources, targets = cut(SOURCES, before, after), cut(TARGETS)
        prefix = [["eng_Latn"]] * len(sources) if name == "nllb" else None
        if prefix:
            targets = [["eng_Latn", *target] for target in targets]
        translations = judge.run(
            "translate",
            folder=str(built),
            sources=sources,
            beam_size=1,
            max_decoding_length=LIMIT,
            **({"target_prefix": prefix} if prefix else {}),
        )
        oracle = {"greedy": [hypotheses[0] for hypotheses, _ in translations]}
        for compute_type in ("float32", "int8"):
            scores = judge.run("score", folder=str(built), sources=sources, targets=targets, compute_type=compute_type)
            oracle[compute_type] = [[round(score, 5) for score in line] for line in scores]
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for file in ("model.bin", "config.json", *VOCABULARIES[name]):
            shutil.copy(built / file, folder)
    (folder / "oracle.json").write_text(json.dumps(oracle, ensure_ascii=False) + "\n", "utf-8")


def main() -> None:
    judge = Judge(Path(tempfile.gettempdir()))
    for name in MODELS:
        write(name, judge)


if __name__ == "__main__":
    main()
