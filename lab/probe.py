"""Probe what sentence encoders know of a sentence: the ten tasks of Li et al. 2019, Table 1, at our size.

    python -m lab.probe checkpoints/capsule-marian-en-de --treebank ud-english-ewt --output outputs/probes-en-de.json
    python -m lab.probe --treebank ud-english-ewt --output outputs/probing.json

With checkpoints, their encoders stay as they are, and a classifier reads the mean of their states (Conneau et al.
2018). Beside each stands an untrained encoder of the same configuration, which shows what the words alone tell.
Without checkpoints, an encoder of three layers is trained with each classifier, once for each way to aggregate heads,
as Li et al. did. The treebank is a folder with train, dev and test .conllu or .conllu.gz files. Each training is kept
in the result file, so the same command resumes.
"""

import argparse
import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from torch import nn
from tqdm import tqdm
from transformers import AutoModelForSeq2SeqLM, PreTrainedTokenizerBase

import hf_capsule_mt  # noqa: F401  its models
from capsule_mt.commands.console import HelpFormatter, folder, run
from hf_capsule_mt.commands.arguments import keep_freed_memory
from hf_capsule_mt.data import train_tokenizer
from hf_capsule_mt.evaluation import read_result, write_result
from hf_capsule_mt.evaluation.results import markdown_table
from hf_capsule_mt.loading import load_checkpoint
from hf_capsule_mt.modeling.modeling_capsule_marian import CapsuleMarianEncoder
from lab.over_seeds import mean_and_spread, p_over_seeds, shown_p
from lab.probing_tasks import TASKS, ProbingTask, Sentence, forms, make_tasks, read_treebank
from lab.records import Records

AGGREGATIONS = ("concat", "simple_routing", "em_routing")
RECORD = "probes-en-de"
UNTRAINED = "untrained"
FILES = {"train": "train", "validation": "dev", "test": "test"}
BATCH_SIZE = 64
POOLED_BATCHES = 8  # random examples that are sorted by length together
MAX_TOKENS = 256  # of a sentence

# turns the examples [P] of a batch into the inputs of the classifier and their mask
Collate = Callable[[list[torch.Tensor]], tuple[torch.Tensor, torch.Tensor | None]]


@dataclass(frozen=True)
class ProbingSettings:
    """Sizes of the encoders that are trained, and how classifiers are trained.

    patience: epochs without a better accuracy on the validation part after which training ends.
    hidden: width of the classifier's hidden layer.
    """

    d_model: int = 128
    layers: int = 3
    heads: int = 8
    num_iterations: int = 3
    vocab_size: int = 4000
    hidden: int = 256
    dropout: float = 0.1
    learning_rate: float = 1e-3
    epochs: int = 20
    patience: int = 3


class SentenceClassifier(nn.Module):
    """A hidden layer over the mean of the words' states; without an encoder, over sentence vectors."""

    def __init__(self, encoder: nn.Module | None, width: int, classes: int, settings: ProbingSettings) -> None:
        super().__init__()
        self.encoder = encoder
        self.classifier = nn.Sequential(
            nn.LayerNorm(width),
            nn.Linear(width, settings.hidden),
            nn.ReLU(),
            nn.Dropout(settings.dropout),
            nn.Linear(settings.hidden, classes),
        )

    def forward(self, inputs: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        """Token ids [B, S] and their mask [B, S], or sentence vectors [B, d] -> logits [B, classes]."""
        if self.encoder is not None:
            inputs = mean_state(self.encoder(input_ids=inputs, attention_mask=mask).last_hidden_state, mask)
        return self.classifier(inputs)


def mean_state(states: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
    """Average the states [B, S, d] of real words [B, S]."""
    if mask is None or mask.shape != states.shape[:2]:  # an encoder may return a fixed number of states
        return states.mean(dim=1)
    keep = mask.unsqueeze(-1).to(states.dtype)
    return (states * keep).sum(dim=1) / keep.sum(dim=1).clamp(min=1)


def padded(ids: Sequence[torch.Tensor], pad: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return token ids, padded, and their mask, [B, S]."""
    inputs = nn.utils.rnn.pad_sequence(list(ids), batch_first=True, padding_value=pad)
    lengths = torch.tensor([len(sentence_ids) for sentence_ids in ids])
    return inputs, (torch.arange(inputs.shape[1]) < lengths.unsqueeze(1)).long()


def token_ids(texts: Iterable[str], tokenizer: PreTrainedTokenizerBase) -> list[torch.Tensor]:
    return [torch.tensor(ids) for ids in tokenizer(list(texts), truncation=True, max_length=MAX_TOKENS)["input_ids"]]


@torch.no_grad()
def sentence_vectors(
    texts: Sequence[str], encoder: nn.Module, tokenizer: PreTrainedTokenizerBase
) -> dict[str, torch.Tensor]:
    """Return the mean of the encoder's states of each text."""
    by_length = sorted(texts, key=len)
    vectors: dict[str, torch.Tensor] = {}
    for start in tqdm(range(0, len(by_length), BATCH_SIZE), desc="encoding", leave=False):
        batch = by_length[start : start + BATCH_SIZE]
        inputs, mask = padded(token_ids(batch, tokenizer), int(tokenizer.pad_token_id))
        states = encoder(input_ids=inputs, attention_mask=mask).last_hidden_state
        vectors |= dict(zip(batch, mean_state(states, mask), strict=True))
    return vectors


def texts_of(task: ProbingTask, part: str) -> list[str]:
    return [" ".join(words) for words, _ in task.parts[part]]


def random_batches(lengths: list[int], generator: torch.Generator) -> list[torch.Tensor]:
    """Return the indices of all examples in random batches of similar lengths.

    Within a batch they differ: one task predicts the length, so batches of one length would have one class.
    """
    lengths_by_index = torch.tensor(lengths)
    pools = torch.randperm(len(lengths), generator=generator).split(POOLED_BATCHES * BATCH_SIZE)
    batches = [
        batch for pool in pools for batch in pool[lengths_by_index[pool].argsort(stable=True)].split(BATCH_SIZE)
    ]
    return [batches[n] for n in torch.randperm(len(batches), generator=generator).tolist()]


@torch.no_grad()
def accuracy(model: SentenceClassifier, examples: list[torch.Tensor], labels: torch.Tensor, collate: Collate) -> float:
    model.eval()
    correct = 0
    for indices in torch.tensor([len(example) for example in examples]).argsort().split(BATCH_SIZE):
        logits = model(*collate([examples[n] for n in indices.tolist()]))
        correct += int((logits.argmax(dim=-1) == labels[indices]).sum())
    return correct / len(examples)


def train(
    model: SentenceClassifier,
    task: ProbingTask,
    examples: Mapping[str, list[torch.Tensor]],
    collate: Collate,
    seed: int,
    settings: ProbingSettings,
) -> dict[str, Any]:
    """Train on the task; return the accuracies of the epoch that is best on the validation part."""
    class_indices = {name: index for index, name in enumerate(task.classes)}
    labels = {part: torch.tensor([class_indices[name] for _, name in task.parts[part]]) for part in task.parts}
    optimizer = torch.optim.Adam(model.parameters(), lr=settings.learning_rate)
    generator = torch.Generator().manual_seed(seed)
    best, best_weights, epoch, best_epoch = -1.0, copy.deepcopy(model.state_dict()), 0, 0
    while epoch < settings.epochs and epoch - best_epoch < settings.patience:
        epoch += 1
        model.train()
        for indices in random_batches([len(example) for example in examples["train"]], generator):
            inputs, mask = collate([examples["train"][n] for n in indices.tolist()])
            loss = nn.functional.cross_entropy(model(inputs, mask), labels["train"][indices])
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        validation = accuracy(model, examples["validation"], labels["validation"], collate)
        if validation > best:
            best, best_weights, best_epoch = validation, copy.deepcopy(model.state_dict()), epoch
    model.load_state_dict(best_weights)
    return {
        "task": task.name,
        "seed": seed,
        "accuracy": accuracy(model, examples["test"], labels["test"], collate),
        "validation_accuracy": best,
        "majority": task.majority,
        "classes": len(task.classes),
        "sentences": {part: len(part_examples) for part, part_examples in task.parts.items()},
        "epochs": epoch,
    }


def train_with_encoder(
    task: ProbingTask, aggregation: str, tokenizer: PreTrainedTokenizerBase, seed: int, settings: ProbingSettings
) -> dict[str, Any]:
    """Train an encoder whose heads are aggregated in this way, and a classifier on top."""
    torch.manual_seed(seed)
    config = CapsuleMarianEncoder.config_class(
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
        head_aggregation=aggregation,  # type: ignore[arg-type]
        head_aggregation_num_iterations=settings.num_iterations,
    )
    model = SentenceClassifier(CapsuleMarianEncoder(config), settings.d_model, len(task.classes), settings)
    examples = {part: token_ids(texts_of(task, part), tokenizer) for part in task.parts}
    pad = int(tokenizer.pad_token_id)
    return train(model, task, examples, lambda ids: padded(ids, pad), seed, settings)


def train_on_vectors(
    task: ProbingTask, vectors: Mapping[str, torch.Tensor], seed: int, settings: ProbingSettings
) -> dict[str, Any]:
    """Train a classifier alone, on the vector of each text."""
    torch.manual_seed(seed)
    examples = {part: [vectors[text] for text in texts_of(task, part)] for part in task.parts}
    model = SentenceClassifier(None, len(examples["train"][0]), len(task.classes), settings)
    return train(model, task, examples, lambda batch: (torch.stack(batch), None), seed, settings)


def encoders_of(checkpoint: Path) -> dict[str, tuple[nn.Module, PreTrainedTokenizerBase]]:
    """Return the checkpoint's encoder, and an untrained one of its configuration, by their names."""
    model, tokenizer = load_checkpoint(checkpoint)
    torch.manual_seed(0)
    untrained = AutoModelForSeq2SeqLM.from_config(model.config).eval()
    return {
        checkpoint.name: (model.get_encoder(), tokenizer),
        f"{checkpoint.name}, {UNTRAINED}": (untrained.get_encoder(), tokenizer),
    }


def probing_table(results: Sequence[Mapping[str, Any]]) -> str:
    """Return a Markdown table: accuracies in percent over seeds, and each encoder's difference to the first."""
    accuracies: dict[str, dict[str, dict[int, float]]] = {}
    for result in results:
        by_task = accuracies.setdefault(result["encoder"], {})
        by_task.setdefault(result["task"], {})[result["seed"]] = 100 * result["accuracy"]
    results_by_task = {result["task"]: result for result in results}
    tasks = [task for task in TASKS if task in results_by_task]
    rows = [
        ["commonest class", *(f"{100 * results_by_task[task]['majority']:.1f}" for task in tasks)],
        ["test sentences", *(f"{results_by_task[task]['sentences']['test']:,}" for task in tasks)],
    ]
    for encoder, by_task in accuracies.items():
        rows.append([encoder, *(_spread(by_task.get(task, {})) for task in tasks)])
    first, *other_encoders = accuracies
    for encoder in other_encoders:
        pairs = [(accuracies[encoder].get(task, {}), accuracies[first].get(task, {})) for task in tasks]
        rows.append([f"{encoder} against {first}", *(_difference(*pair) for pair in pairs)])
    return markdown_table(["encoder", *tasks], rows)


def _spread(by_seed: Mapping[int, float]) -> str:
    return mean_and_spread(list(by_seed.values()), ".1f") if by_seed else ""


def _difference(ours: Mapping[int, float], theirs: Mapping[int, float]) -> str:
    """Return the mean difference of seeds that both have, with the p of Student's t-test over them."""
    differences = [value - theirs[seed] for seed, value in ours.items() if seed in theirs]
    if not differences:
        return ""
    p = p_over_seeds(differences)
    return f"{fmean(differences):+.1f}" + ("" if p is None else f" (p: {shown_p(p)})")


def table(records: Records) -> str:
    """Return the probes of the released encoder, and of an untrained one."""
    record = records.named("studies").get(RECORD)
    return probing_table(record["results"]) if record else "Not measured yet."


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=HelpFormatter)
    parser.add_argument("checkpoints", type=folder, nargs="*", help="models whose encoders stay as they are")
    parser.add_argument(
        "--treebank", type=folder, required=True, help="a folder with train, dev and test .conllu[.gz]"
    )
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS), help="by default all ten")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3], help="train with each of these")
    parser.add_argument("--sentences", type=int, help="train with at most this many sentences, for a quick look")
    parser.add_argument("--output", type=Path, required=True, help="the result file to write, or to resume")
    return parser.parse_args()


def treebank_parts(path: Path, sentences: int | None) -> dict[str, Sequence[Sentence]]:
    """Return the parts of a treebank; of several files of a part, the first by name is read."""
    parts: dict[str, Sequence[Sentence]] = {}
    for part, name in FILES.items():
        files = sorted(path.glob(f"{name}*.conllu*"))
        if not files:
            raise FileNotFoundError(f"{path}: does not have a {name}*.conllu or {name}*.conllu.gz")
        parts[part] = read_treebank(files[0])
    parts["train"] = parts["train"][:sentences]
    return parts


class ResultFile:
    """The result file of the command; what has a result there is not trained again."""

    def __init__(self, path: Path, about: dict[str, Any]) -> None:
        self.path, self.about = path, about
        self.results: list[dict[str, Any]] = []
        if path.exists():
            earlier = read_result(path)
            if {name: earlier.get(name) for name in about} != about:
                raise SystemExit(f"{path} was made with other settings: choose another --output or remove it")
            self.results = earlier["results"]

    def has(self, encoder: str, task: ProbingTask, seed: int) -> bool:
        key = (encoder, task.name, seed)
        return any((result["encoder"], result["task"], result["seed"]) == key for result in self.results)

    def keep(self, encoder: str, result: dict[str, Any]) -> None:
        self.results.append({"encoder": encoder, **result})
        write_result(self.path, {"kind": "probing", **self.about, "results": self.results})


def probe(
    name: str,
    train_probe: Callable[[ProbingTask, int], dict[str, Any]],
    tasks: Sequence[ProbingTask],
    seeds: Sequence[int],
    file: ResultFile,
) -> None:
    """Train an encoder's classifier for each task and seed whose result the file does not have."""
    missing = [(task, seed) for task in tasks for seed in seeds if not file.has(name, task, seed)]
    for task, seed in tqdm(missing, desc=name):
        file.keep(name, train_probe(task, seed))


def main() -> None:
    arguments = parse_arguments()
    keep_freed_memory()
    parts = treebank_parts(arguments.treebank, arguments.sentences)
    settings = ProbingSettings()
    file = ResultFile(arguments.output, {"settings": asdict(settings), "training_sentences": len(parts["train"])})
    tasks = make_tasks(parts, arguments.tasks)
    for checkpoint in arguments.checkpoints:
        for name, (encoder, tokenizer) in encoders_of(checkpoint).items():
            texts = dict.fromkeys(text for task in tasks for part in task.parts for text in texts_of(task, part))
            vectors = sentence_vectors(list(texts), encoder, tokenizer)
            probe(
                name,
                lambda task, seed, vectors=vectors: train_on_vectors(task, vectors, seed, settings),  # type: ignore
                tasks,
                arguments.seeds,
                file,
            )
    if not arguments.checkpoints:
        tokenizer = train_tokenizer((" ".join(forms(sentence)) for sentence in parts["train"]), settings.vocab_size)
        for aggregation in AGGREGATIONS:
            probe(
                aggregation,
                lambda task, seed, kind=aggregation: train_with_encoder(task, kind, tokenizer, seed, settings),  # type: ignore
                tasks,
                arguments.seeds,
                file,
            )
    print(f"{probing_table(file.results)}\nResult: {arguments.output}")


if __name__ == "__main__":
    run(main)
