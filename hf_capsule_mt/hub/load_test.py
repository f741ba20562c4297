"""The program that `check_export` runs: load a folder while the package cannot be imported, and translate.

python -I load_test.py FOLDER PACKAGE
"""

import json
import sys
from importlib.abc import MetaPathFinder
from typing import Any, NamedTuple

PROGRAM = __file__
TEXT = "The old man buys a red hat, and Who laughs? 3.5 é 🙂"
SEARCH = {"num_beams": 2, "max_new_tokens": 12}


class Probe(NamedTuple):
    """What a model makes of `TEXT`: the logits of the first token, and the token ids of its translation."""

    logits: list[float]
    token_ids: list[int]


def probe(model: Any, tokenizer: Any) -> Probe:
    import torch

    batch = tokenizer(TEXT, return_tensors="pt")
    batch.pop("token_type_ids", None)
    start = model.generation_config.decoder_start_token_id or model.config.decoder_start_token_id
    with torch.no_grad():
        logits = model(**batch, decoder_input_ids=torch.full((1, 1), start)).logits[0, 0]
    return Probe(logits.tolist(), model.generate(**batch, max_length=None, **SEARCH)[0].tolist())


class Absent(MetaPathFinder):
    """Hide an installed package from import."""

    def __init__(self, package: str) -> None:
        self.package = package

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> None:
        if fullname.partition(".")[0] == self.package:
            raise ModuleNotFoundError(f"No module named {self.package!r}: it is hidden", name=self.package)


def main(folder: str, package: str) -> None:
    sys.meta_path.insert(0, Absent(package))
    import torch
    import transformers

    settings: Any = {"trust_remote_code": True, "dtype": torch.float32}
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder, **settings).eval()
    transformers.AutoModel.from_pretrained(folder, **settings)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, trust_remote_code=True)
    pipeline: Any = transformers.pipeline  # its overloads do not know the task
    (record,) = pipeline("translation", model=folder, trust_remote_code=True)(TEXT, return_tensors=True, **SEARCH)
    probed = probe(model, tokenizer)
    if (ids := record["translation_token_ids"].tolist()) != probed.token_ids:
        raise SystemExit(f"the pipeline writes {ids}, but the model writes {probed.token_ids}")
    print(json.dumps(probed))


if __name__ == "__main__":
    main(*sys.argv[1:])
