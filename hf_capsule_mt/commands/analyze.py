"""Show what the routings of a checkpoint do, or the weights of its layers: numbers as JSON, and pictures.

    capsule-mt analyze outputs/em --sources test.en --targets test.de --output outputs/analysis/em
    capsule-mt analyze outputs/dense --sources test.en --targets test.de --output outputs/analysis/dense

The command writes the entropy and diversity of every routing at every iteration and the number of capsules in use, and
draws the average assignments of layers or heads. For the sentence pair that --show names, it draws PAST and FUTURE of
each source word, or the words of each capsule, if the model has them. If the model predicts bags of words, it also
writes their overlap rates.
If the model has PAST and FUTURE, it writes how they change around the step that generates a word; a word aligner
learns which words belong together from up to 5,000 of the lines.

If layers are not routed but summed with weights (`layer_aggregation` dynamic_combination, dense, depth_attention, mudd
or grn), the command writes the mean weight of each layer and how much it varies, and draws the mean. If these weights
are a distribution (depth_attention), it also writes their entropy.

With --joined, the command asks whether the model knows what a translation left out: it joins sentences at equal
distances in the files, leaves out the reference of one, and counts how often PAST and FUTURE and a head of attention
name it.

    capsule-mt analyze outputs/gdr --sources test.en --targets test.de --joined 2 3 --output outputs/analysis/gdr
"""

import argparse
from pathlib import Path
from typing import Any

from capsule_mt.commands.console import CommandParser, checkpoint_folder, positive
from capsule_mt.files.outputs import check_outputs
from capsule_mt.files.reading import read_parallel


def parse_arguments() -> argparse.Namespace:
    parser = CommandParser(description=__doc__)
    parser.add_argument("checkpoint", type=checkpoint_folder, help="a folder with a model and its tokenizer")
    parser.add_argument("--sources", type=Path, required=True, help="source sentences, one a line")
    parser.add_argument("--targets", type=Path, required=True, help="their translations, by people or by the model")
    parser.add_argument("--sentences", type=positive, default=200, help="how many of the first sentences to analyse")
    parser.add_argument("--show", type=positive, default=1, help="the number of the sentence to draw, from 1")
    parser.add_argument(
        "--joined", type=positive, nargs="+", default=[], metavar="K", help="which of K joined sentences is lost?"
    )
    parser.add_argument("--output", type=Path, required=True, help="prefix of the files to write")
    return parser.parse_args()


ALIGNED = 5000  # lines that the alignment is learnt from: on these it takes seconds


def named(output: Path, ending: str) -> Path:
    return output.with_name(f"{output.name}{ending}")


def movement(model: Any, tokenizer: Any, batches: list[Any], text: tuple[list[str], list[str]]) -> list[Any]:
    """Return PAST and FUTURE around the step that writes a word, over the tokens that an aligner links."""
    from capsule_mt.coverage.calibration.word_alignment import WordAligner
    from hf_capsule_mt.analysis.past_future import forced_curves, shares_around_step

    encoded = tokenizer(text[0], text_target=text[1])
    pairs = [
        ([str(token) for token in source], [str(token) for token in target])
        for source, target in zip(encoded["input_ids"], encoded["labels"], strict=True)
    ]
    curves: list[Any] = []
    for batch in batches:
        forced = forced_curves(model, **batch)
        curves += zip(forced.past.cpu(), forced.future.cpu(), strict=True)
    links = WordAligner(stem=str).fit(pairs).align(pairs[: len(curves)])
    return shares_around_step(curves, links)


def draw_stacks(layer_weights: dict[str, Any], output: Path) -> list[Path]:
    """Draw the weights of layers, one picture for each stack that has them."""
    from hf_capsule_mt.analysis.pictures import draw_layer_weights

    pictures = []
    for stack in dict.fromkeys(name.split(".")[0] for name in layer_weights):
        entries = {
            name.removeprefix(f"{stack}."): entry for name, entry in layer_weights.items() if name.startswith(stack)
        }
        sources = max((entry.sources for entry in entries.values()), key=len)
        means = {name: entry.mean for name, entry in entries.items()}
        pictures.append(draw_layer_weights(means, sources, named(output, f"-{stack}.layer_weights.png")))
    return pictures


def lost(model: Any, tokenizer: Any, text: tuple[list[str], list[str]], sentences: int, joined: int) -> list[Any]:
    """Ask which of joined sentences is lost, over sentences at equal distances in the text; print the answers."""
    from hf_capsule_mt.analysis.lost_sentences import lost_sentences

    stride = max(1, len(text[0]) // sentences)
    sources, targets = (lines[::stride][:sentences] for lines in text)
    results = lost_sentences(model, tokenizer, sources, targets, joined)
    for result in results:
        guided = "" if result.past_future is None else f"by PAST and FUTURE {result.past_future}, "
        layer, head = result.head
        print(
            f"sentence {result.lost} of {joined} lost, {result.cases} times: named {guided}by head {head} of layer "
            f"{layer} {result.attention}, by chance {result.cases / joined:.0f}"
        )
    return results


def main() -> None:
    arguments = parse_arguments()
    from hf_capsule_mt.analysis.layer_weights import layer_weight_statistics
    from hf_capsule_mt.analysis.past_future import mean_overlap_rate, overlap_rates
    from hf_capsule_mt.analysis.routing_statistics import encoded_batches, routing_statistics
    from hf_capsule_mt.analysis.sentences import draw_averages, draw_sentence
    from hf_capsule_mt.evaluation import write_result
    from hf_capsule_mt.loading import load_checkpoint

    check_outputs([named(arguments.output, ".json")])
    model, tokenizer = load_checkpoint(arguments.checkpoint)
    all_sources, all_targets = read_parallel([arguments.sources, arguments.targets])
    sources, targets = all_sources[: arguments.sentences], all_targets[: arguments.sentences]
    if arguments.show > len(all_sources):
        raise ValueError(f"--show {arguments.show}: {arguments.sources} has {len(all_sources)} sentences")
    if len(sources) < len(all_sources):
        print(f"Analysing the first {len(sources)} of {len(all_sources)} sentences: --sentences sets their number")
    batches = list(encoded_batches(tokenizer, sources, targets))
    statistics = routing_statistics(model, batches)
    layer_weights = layer_weight_statistics(model, batches)
    result: dict[str, Any] = {
        "kind": "routing statistics",
        "checkpoint": arguments.checkpoint.name,
        "sentences": len(sources),
        "routings": {routing: [entry.as_dict() for entry in entries] for routing, entries in statistics.items()},
    }
    for routing, entries in statistics.items():
        used = ", ".join(f"{entry.effective_capsules:.1f}" for entry in entries)
        print(f"{routing}: {used} of {entries[0].num_capsules} capsules in use, by iteration")
    if layer_weights:
        result["layer_weights"] = {name: entry.as_dict() for name, entry in layer_weights.items()}
    for name, layer_entry in layer_weights.items():
        print(f"{name}: {layer_entry}")
    losses = getattr(model, "guided_losses", None)
    if losses is not None and losses.bow_weight > 0:
        rates = mean_overlap_rate([rate for batch in batches for rate in overlap_rates(model, **batch)])
        result["overlap_rates"] = rates._asdict()
    if "decoder.guidance" in statistics:
        shares = movement(model, tokenizer, batches, (all_sources[:ALIGNED], all_targets[:ALIGNED]))
        result["around_the_step"] = [entry._asdict() for entry in shares]
    for joined in arguments.joined:
        answers = lost(model, tokenizer, (all_sources, all_targets), arguments.sentences, joined)
        named_answers = {f"{answer.lost} of {joined}": answer._asdict() for answer in answers}
        result.setdefault("lost_sentences", {}).update(named_answers)
    print(f"Numbers: {write_result(named(arguments.output, '.json'), result)}")
    pictures = draw_stacks(layer_weights, arguments.output)
    pictures += draw_averages(statistics, arguments.output)
    shown = all_sources[arguments.show - 1], all_targets[arguments.show - 1]
    pictures += draw_sentence(model, tokenizer, *shown, arguments.output)
    print("Pictures: " + ", ".join(map(str, pictures)))
