"""Probing a sentence encoder: how well a small classifier reads a property off the mean of its states.

Two ways. As in Li et al. 2019, section 5.1, a three-layer encoder is trained on the task together with the
classifier, once for each way to aggregate attention heads. As in Conneau et al. 2018, the encoder of a translation
model is kept as it is, and the classifier alone is trained."""

import copy
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from torch import nn
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, PreTrainedTokenizerBase

from hf_capsule_mt.evaluation.results import markdown_table
from hf_capsule_mt.modeling.modeling_capsule_marian import CapsuleMarianEncoder
from lab.over_seeds import mean_and_spread, p_over_seeds
from lab.paper_tables import PROBING
from lab.probing_tasks import TASKS, Example, ProbingTask

POOLED_BATCHES = 8  # of which each has examples of similar length


@dataclass(frozen=True)
class ProbingSettings:
    """Sizes of the encoder that is trained, and how the training goes.

    patience: epochs without a better accuracy on the validation part after which training ends.
    hidden: width of the classifier's hidden layer.
    """

    d_model: int = 128
    layers: int = 3
    heads: int = 8
    num_capsules: int | None = None
    num_iterations: int = 3
    vocab_size: int = 4000
    hidden: int = 256
    dropout: float = 0.1
    batch_size: int = 64
    learning_rate: float = 1e-3
    epochs: int = 20
    patience: int = 3


@dataclass(frozen=True)
class ProbingResult:
    """Accuracies of one training on one task; those of the epoch that was best on the validation part."""

    task: str
    encoder: str
    seed: int
    accuracy: float
    validation_accuracy: float
    majority: float
    classes: int
    sentences: dict[str, int]
    epochs: int


class SentenceClassifier(nn.Module):
    """Mean over the words' states, then one hidden layer. Without an encoder it takes sentence vectors."""

    def __init__(self, encoder: nn.Module | None, width: int, classes: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.encoder = encoder
        self.classifier = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, hidden), nn.ReLU(), nn.Dropout(dropout), nn.Linear(hidden, classes)
        )

    def forward(self, inputs: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        """Token ids [B, S] and their mask [B, S], or sentence vectors [B, d] -> logits [B, classes]."""
        if self.encoder is not None:
            inputs = mean_state(self.encoder(input_ids=inputs, attention_mask=mask).last_hidden_state, mask)
        return self.classifier(inputs)


def mean_state(states: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
    """The mean of the states [B, S, d] of real words [B, S]; of all, if an encoder gives a fixed number of them."""
    if mask is None or mask.shape != states.shape[:2]:
        return states.mean(dim=1)
    keep = mask.unsqueeze(-1).to(states.dtype)
    return (states * keep).sum(dim=1) / keep.sum(dim=1).clamp(min=1)


def new_encoder(aggregation: Any, tokenizer: PreTrainedTokenizerBase, settings: ProbingSettings) -> nn.Module:
    """A Transformer encoder whose attention heads are aggregated by "concat", "simple_routing" or "em_routing"."""
    return CapsuleMarianEncoder(
        CapsuleMarianEncoder.config_class(
            vocab_size=len(tokenizer),
            d_model=settings.d_model,
            encoder_layers=settings.layers,
            encoder_attention_heads=settings.heads,
            decoder_attention_heads=settings.heads,
            encoder_ffn_dim=4 * settings.d_model,
            dropout=settings.dropout,
            max_position_embeddings=512,
            scale_embedding=True,
            pad_token_id=tokenizer.pad_token_id,
            eos_token_id=tokenizer.eos_token_id,
            decoder_start_token_id=tokenizer.pad_token_id,
            forced_eos_token_id=None,
            head_aggregation=aggregation,
            head_aggregation_num_capsules=settings.num_capsules,
            head_aggregation_num_iterations=settings.num_iterations,
        )
    )


def train_probe(
    task: ProbingTask,
    aggregation: str,
    tokenizer: PreTrainedTokenizerBase,
    seed: int,
    settings: ProbingSettings,
    device: str = "cpu",
    progress: Callable[[str], None] | None = None,
) -> ProbingResult:
    """An encoder and a classifier, both from nothing, trained on a task."""
    torch.manual_seed(seed)
    encoder = new_encoder(aggregation, tokenizer, settings)
    model = SentenceClassifier(encoder, settings.d_model, len(task.classes), settings.hidden, settings.dropout)
    data = {part: _token_ids(examples, tokenizer) for part, examples in task.parts.items()}
    return _train(task, aggregation, model.to(device), data, tokenizer.pad_token_id, seed, settings, device, progress)


def probe_checkpoint(
    tasks: Sequence[ProbingTask],
    checkpoint: str | os.PathLike[str],
    seeds: Sequence[int],
    settings: ProbingSettings,
    device: str = "cpu",
    progress: Callable[[str], None] | None = None,
) -> Iterator[ProbingResult]:
    """The classifier alone, on the encoder of any sequence-to-sequence checkpoint, which stays as it is."""
    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    encoder: Any = AutoModelForSeq2SeqLM.from_pretrained(checkpoint).get_encoder().to(device).eval()
    for task in tasks:
        vectors = {
            part: _sentence_vectors(_token_ids(examples, tokenizer), encoder, tokenizer.pad_token_id, settings, device)
            for part, examples in task.parts.items()
        }
        width = vectors["train"][0].shape[-1]
        for seed in seeds:
            torch.manual_seed(seed)
            model = SentenceClassifier(None, width, len(task.classes), settings.hidden, settings.dropout).to(device)
            yield _train(task, str(checkpoint), model, vectors, None, seed, settings, device, progress)


def _token_ids(examples: list[Example], tokenizer: PreTrainedTokenizerBase) -> list[torch.Tensor]:
    texts = [" ".join(words) for words, _ in examples]
    return [torch.tensor(ids) for ids in tokenizer(texts, truncation=True, max_length=256)["input_ids"]]


@torch.no_grad()
def _sentence_vectors(
    ids: list[torch.Tensor], encoder: nn.Module, pad: int, settings: ProbingSettings, device: str
) -> list[torch.Tensor]:
    order = sorted(range(len(ids)), key=lambda n: len(ids[n]))
    vectors: list[torch.Tensor] = [torch.empty(0)] * len(ids)
    for start in range(0, len(order), settings.batch_size):
        chosen = order[start : start + settings.batch_size]
        inputs, mask = _collate([ids[n] for n in chosen], pad, device)
        means = mean_state(encoder(input_ids=inputs, attention_mask=mask).last_hidden_state, mask).cpu()
        for n, vector in zip(chosen, means, strict=True):
            vectors[n] = vector
    return vectors


def _collate(inputs: list[torch.Tensor], pad: int | None, device: str) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Token ids, padded, and their mask [B, S]; or, without a padding token, sentence vectors [B, d]."""
    if pad is None:
        return torch.stack(inputs).to(device), None
    padded = nn.utils.rnn.pad_sequence(inputs, batch_first=True, padding_value=pad)
    lengths = torch.tensor([len(ids) for ids in inputs])
    mask = torch.arange(padded.shape[1]) < lengths.unsqueeze(1)
    return padded.to(device), mask.long().to(device)


def _train(
    task: ProbingTask,
    encoder: str,
    model: SentenceClassifier,
    data: dict[str, list[torch.Tensor]],
    pad: int | None,
    seed: int,
    settings: ProbingSettings,
    device: str,
    progress: Callable[[str], None] | None,
) -> ProbingResult:
    numbers = {name: number for number, name in enumerate(task.classes)}
    labels = {part: torch.tensor([numbers[name] for _, name in task.parts[part]]) for part in task.parts}
    optimizer = torch.optim.Adam(model.parameters(), lr=settings.learning_rate)
    generator = torch.Generator().manual_seed(seed)
    best, best_weights, waited, epoch = -1.0, copy.deepcopy(model.state_dict()), 0, 0
    for epoch in range(1, settings.epochs + 1):
        model.train()
        for chosen in _random_batches([len(one) for one in data["train"]], settings.batch_size, generator):
            inputs, mask = _collate([data["train"][n] for n in chosen.tolist()], pad, device)
            loss = nn.functional.cross_entropy(model(inputs, mask), labels["train"][chosen].to(device))
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        accuracy = _accuracy(model, data["validation"], labels["validation"], pad, settings, device)
        if progress is not None:
            progress(f"{task.name}, {encoder}, seed {seed}, epoch {epoch}: {100 * accuracy:.1f} %")
        waited += 1
        if accuracy > best:
            best, best_weights, waited = accuracy, copy.deepcopy(model.state_dict()), 0
        if waited >= settings.patience:
            break
    model.load_state_dict(best_weights)
    return ProbingResult(
        task=task.name,
        encoder=encoder,
        seed=seed,
        accuracy=_accuracy(model, data["test"], labels["test"], pad, settings, device),
        validation_accuracy=best,
        majority=task.majority,
        classes=len(task.classes),
        sentences={part: len(examples) for part, examples in task.parts.items()},
        epochs=epoch,
    )


def _random_batches(lengths: list[int], size: int, generator: torch.Generator) -> list[torch.Tensor]:
    """The numbers of all examples in batches, in random order. A batch is of similar lengths: there is less padding.

    Some batches' worth of random examples are sorted by length, so that no batch is of one length alone, which some
    tasks ask for.
    """
    of_length = torch.tensor(lengths)
    pools = torch.randperm(len(lengths), generator=generator).split(POOLED_BATCHES * size)
    batches = [batch for pool in pools for batch in pool[of_length[pool].argsort(stable=True)].split(size)]
    return [batches[n] for n in torch.randperm(len(batches), generator=generator).tolist()]


@torch.no_grad()
def _accuracy(
    model: SentenceClassifier,
    inputs: list[torch.Tensor],
    labels: torch.Tensor,
    pad: int | None,
    settings: ProbingSettings,
    device: str,
) -> float:
    model.eval()
    right = 0
    for chosen in torch.tensor([len(one) for one in inputs]).argsort().split(settings.batch_size):
        batch, mask = _collate([inputs[n] for n in chosen.tolist()], pad, device)
        right += int((model(batch, mask).argmax(dim=-1).cpu() == labels[chosen]).sum())
    return right / len(inputs)


EXPLANATION = (
    "Accuracy in percent, mean and standard deviation over seeds; differences to the first encoder of the same seed, "
    "with the p of Student's t-test over them."
)


class Accuracies:
    """Those of the `ProbingResult`s that are given as dicts, in percent, by encoder, task and seed."""

    def __init__(self, results: Sequence[Mapping[str, Any]]) -> None:
        self.encoders = list(dict.fromkeys(entry["encoder"] for entry in results))
        self._found: dict[tuple[str, str], dict[int, float]] = {}
        for entry in results:
            self._found.setdefault((entry["encoder"], entry["task"]), {})[entry["seed"]] = 100 * entry["accuracy"]

    def of(self, encoder: str, task: str) -> list[float]:
        """One of each seed."""
        return list(self._found.get((encoder, task), {}).values())

    def differences(self, encoder: str, task: str) -> list[float]:
        """An encoder's to the first, of each seed that both have."""
        ours, theirs = (self._found.get((name, task), {}) for name in (encoder, self.encoders[0]))
        return [value - theirs[seed] for seed, value in ours.items() if seed in theirs]


def probing_table(results: Sequence[Mapping[str, Any]]) -> str:
    """Accuracy in percent, mean and standard deviation over seeds, as Markdown; beside them those of the paper.

    Below the encoders their differences to the first, the mean over seeds, with the p of the t-test over seeds.

    Args:
        results: `ProbingResult`s as dicts.
    """
    found = Accuracies(results)
    of_task = {entry["task"]: entry for entry in results}
    tasks = [task for task in TASKS if task in of_task]
    lines = [
        ["commonest class", *(f"{100 * of_task[task]['majority']:.1f}" for task in tasks)],
        ["test sentences", *(f"{of_task[task]['sentences']['test']:,}" for task in tasks)],
    ]
    names = {encoder: Path(encoder).name for encoder in found.encoders}
    for encoder, name in names.items():
        accuracies = [found.of(encoder, task) for task in tasks]
        lines.append([name, *(mean_and_spread(values, ".1f") if values else "" for values in accuracies)])
    first, *others = names
    for encoder in others:
        differences = [found.differences(encoder, task) for task in tasks]
        lines.append([f"{names[encoder]} against {names[first]}", *map(_with_p, differences)])
    for encoder, printed in PROBING.items():
        lines.append([f"paper: {encoder}", *(f"{printed[task]:.2f}" for task in tasks)])
    table = markdown_table(["encoder", *tasks], lines)
    return f"{EXPLANATION}\n\n{table}\n"


def _with_p(differences: Sequence[float]) -> str:
    """The mean, and its p over seeds where there are several."""
    if not differences:
        return ""
    p = p_over_seeds(differences)
    return f"{fmean(differences):+.1f}" + ("" if p is None else f" (p={p:.3f})")
