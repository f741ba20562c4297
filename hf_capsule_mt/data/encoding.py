"""From the `translation` column to model inputs: token ids and their lengths."""

from typing import Any

from datasets import Dataset
from torch.utils.data import Dataset as TorchDataset
from transformers import PreTrainedTokenizerBase

from hf_capsule_mt.data.bpe_dropout import BPEDropout


def encode(
    dataset: Dataset,
    tokenizer: PreTrainedTokenizerBase,
    source_language: str,
    target_language: str,
    *,
    max_length: int | None = None,
    num_proc: int | None = None,
    keep_text: bool = False,
) -> Dataset:
    """Turn `translation` into `input_ids` and `labels`, and add `source_length`, `target_length`.

    Args:
        max_length: truncate longer texts, keeping the end token. Drop long training examples instead (`drop_long`).
        num_proc: the number of processes.
        keep_text: keep the column `translation`.
    """

    def to_ids(batch: dict[str, list[Any]]) -> dict[str, list[Any]]:
        sources, targets = ([pair[key] for pair in batch["translation"]] for key in (source_language, target_language))
        truncation = {"truncation": True, "max_length": max_length} if max_length else {}
        encoded = tokenizer(sources, text_target=targets, return_attention_mask=False, **truncation)
        if truncation and tokenizer.is_fast:
            tokenizer.backend_tokenizer.no_truncation()  # else a saved tokenizer would go on truncating
        return {
            "input_ids": encoded["input_ids"],
            "labels": encoded["labels"],
            "source_length": [len(ids) for ids in encoded["input_ids"]],
            "target_length": [len(ids) for ids in encoded["labels"]],
        }

    removed = [] if keep_text else ["translation"]
    return dataset.map(to_ids, batched=True, remove_columns=removed, num_proc=num_proc, desc="Tokenizing")


def drop_long(dataset: Dataset, max_length: int) -> tuple[Dataset, int]:
    """Drop the pairs with more than `max_length` tokens on a side; return the rest and the number dropped."""
    lengths = zip(dataset["source_length"], dataset["target_length"], strict=True)
    indices = [index for index, pair in enumerate(lengths) if max(pair) <= max_length]
    return (dataset, 0) if len(indices) == len(dataset) else (dataset.select(indices), len(dataset) - len(indices))


class DropoutDataset(TorchDataset[dict[str, list[int]]]):
    """An encoded data set with its texts, which BPE-dropout segments anew in every epoch."""

    def __init__(self, dataset: Dataset, dropout: BPEDropout, source_language: str, target_language: str) -> None:
        self.texts = dataset.select_columns(["translation"])
        self.source_lengths = [dropout.longest(length) for length in dataset["source_length"]]
        self.target_lengths = [dropout.longest(length) for length in dataset["target_length"]]
        self.dropout = dropout
        self.languages = (source_language, target_language)
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, index: int) -> dict[str, list[int]]:
        pair = self.texts[index]["translation"]
        source, target = (
            self.dropout.encode(pair[language], epoch=self.epoch, index=index, side=side)
            for language, side in zip(self.languages, ("source", "target"), strict=True)
        )
        return {"input_ids": source, "labels": target}
