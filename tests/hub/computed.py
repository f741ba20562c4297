"""What a translation model computes, in the package and in the code of an export: without imports of either.

    python -I computed.py FOLDER...

writes `computed.pt` into each folder, where no package of the project can be imported.
"""

import sys
from importlib.abc import MetaPathFinder
from pathlib import Path

import torch

SEARCHES = {
    "greedy": {},
    "beams": {"num_beams": 3, "num_return_sequences": 2},
    "uncached": {"use_cache": False},
    "static": {"cache_implementation": "static"},
}


class Hidden(MetaPathFinder):
    def find_spec(self, fullname, path=None, target=None):
        if fullname.partition(".")[0] in ("hf_capsule_mt", "capsule_mt"):
            raise ModuleNotFoundError(f"No module named {fullname!r}: it is hidden", name=fullname)


def computed(model):
    """Return logits, losses, gradients, routing weights and translations of a small batch, by name."""
    model.eval()
    source = {"input_ids": torch.tensor([[5, 6, 7, 8, 2], [9, 4, 2, 1, 1]])}
    source["attention_mask"] = source["input_ids"].ne(1).long()
    labels = torch.tensor([[9, 10, 11, 2], [7, 2, -100, -100]])
    output = model(**source, labels=labels, output_routing_weights=True)
    output.loss.backward()
    results = {"logits": output.logits, "loss": output.loss}
    results |= {f"weights of {name}": weights[-1] for name, weights in (output.get("routing_weights") or {}).items()}
    results |= {f"gradient of {name}": tensor.grad for name, tensor in model.named_parameters()}
    for name, search in SEARCHES.items():
        results[name] = model.generate(**source, max_new_tokens=6, **search)
    model.train()
    torch.manual_seed(0)
    torch.optim.SGD(model.parameters(), lr=0.1).step()
    results["loss after a step"] = model(**source, labels=labels).loss
    return {name: tensor.detach() for name, tensor in results.items() if tensor is not None}


if __name__ == "__main__":
    sys.meta_path.insert(0, Hidden())
    from transformers import AutoModelForSeq2SeqLM

    for folder in sys.argv[1:]:
        loaded = AutoModelForSeq2SeqLM.from_pretrained(folder, trust_remote_code=True, dtype=torch.float32)
        assert type(loaded).__module__.startswith("transformers_modules")
        torch.save(computed(loaded), Path(folder) / "computed.pt")
