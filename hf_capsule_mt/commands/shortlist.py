"""List likely translations of each source word, so that decoding scores only these, not the vocabulary.

    capsule-mt shortlist outputs/demo train.en train.de
    capsule-mt translate outputs/demo --shortlist --input text.en --output text.de

Use the text that the model was trained on. From it, a word aligner learns which target tokens translate each source
token. The shortlist has the most likely of them, and the most frequent target tokens for every sentence. It is written
into the checkpoint's folder as shortlist.safetensors, or into --output.
"""

from pathlib import Path

from capsule_mt.commands.console import CommandParser, add_languages, positive
from capsule_mt.files.outputs import check_outputs
from capsule_mt.files.reading import read_parallel
from capsule_mt.models.shortlist import FILE_NAME
from hf_capsule_mt.commands.arguments import checkpoint


def main() -> None:
    parser = CommandParser(description=__doc__)
    parser.add_argument("model", type=checkpoint, help="a checkpoint")
    parser.add_argument("source", type=Path, help="source sentences, one a line")
    parser.add_argument("target", type=Path, help="their translations")
    parser.add_argument(
        "--best", type=positive, default=100, help="number of likely target tokens of each source token"
    )
    parser.add_argument(
        "--frequent", type=positive, default=1000, help="number of frequent target tokens for every sentence"
    )
    parser.add_argument("--output", type=Path, help="the file (default: shortlist.safetensors in the checkpoint)")
    add_languages(parser)
    arguments = parser.parse_args()
    output = arguments.output or Path(arguments.model) / FILE_NAME
    if not output.parent.is_dir():
        parser.error(f"{output.parent}: no such folder; --output names the file of a checkpoint on the hub")
    check_outputs([output], [arguments.source, arguments.target])
    sources, targets = read_parallel([arguments.source, arguments.target])
    if not sources:
        parser.error(f"{arguments.source}: no sentences")
    from hf_capsule_mt.decoding.shortlists import make_shortlist, token_pairs
    from hf_capsule_mt.loading import load_checkpoint

    model, tokenizer = load_checkpoint(arguments.model)
    vocabularies = model.get_input_embeddings().num_embeddings, len(model.get_output_embeddings().weight)
    pairs = token_pairs(tokenizer, sources, targets, src_lang=arguments.src_lang, tgt_lang=arguments.tgt_lang)
    shortlist = make_shortlist(pairs, vocabularies, best=arguments.best, frequent=arguments.frequent)
    shortlist.save(output)
    sizes = [len(shortlist.of_source(source)) for source, _ in pairs[:1000]]
    print(f"{output}: {sum(sizes) / len(sizes):.0f} of {vocabularies[1]} tokens for a sentence, {len(pairs)} pairs")
