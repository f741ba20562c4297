"""The program that `check_export` runs: load a folder while the package cannot be imported, and compare.

python -I load_test.py FOLDER EXPECTED.json PACKAGE TOLERANCE
"""

import json
import sys
from collections.abc import Callable
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import Any


class Absent(MetaPathFinder):
    """Hide an installed package from import."""

    def __init__(self, package: str) -> None:
        self.package = package

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> None:
        if fullname.partition(".")[0] == self.package:
            raise ModuleNotFoundError(f"No module named {self.package!r}: it is hidden", name=self.package)


def main(folder: str, expectation: str, package: str, tolerance: str) -> None:
    sys.meta_path.insert(0, Absent(package))
    import torch
    import transformers
    from transformers import AutoModel, AutoModelForSeq2SeqLM, AutoTokenizer

    expected = json.loads(Path(expectation).read_text(encoding="utf-8"))
    (text,) = expected["probe"]
    model = AutoModelForSeq2SeqLM.from_pretrained(folder, trust_remote_code=True, dtype=torch.float32).eval()
    AutoModel.from_pretrained(folder, trust_remote_code=True)
    tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=True)
    batch = tokenizer(text, return_tensors="pt")
    batch.pop("token_type_ids", None)
    start = model.generation_config.decoder_start_token_id or model.config.decoder_start_token_id
    with torch.no_grad():
        logits = model(**batch, decoder_input_ids=torch.full((1, 1), start)).logits[0, 0]
    distance = float((logits - torch.tensor(expected["logits"])).abs().max())
    if not distance <= float(tolerance):
        raise SystemExit(f"the logits differ by {distance:.2g}, more than {tolerance}")
    pipeline: Callable[..., Any] = transformers.pipeline  # its overloads do not know the task
    translator = pipeline(task="translation", model=folder, trust_remote_code=True)
    settings = {"num_beams": 2, "max_new_tokens": 12, "return_tensors": True}
    (record,) = translator(text, **settings)
    ids = record["translation_token_ids"].tolist()
    if ids != expected["token_ids"][: len(ids)]:
        raise SystemExit(f"the pipeline gives {ids}, not {expected['token_ids']}")
    if any(name.partition(".")[0] == package for name in sys.modules):
        raise SystemExit(f"{package} was imported after all")


if __name__ == "__main__":
    main(*sys.argv[1:])
