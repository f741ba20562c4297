"""Find the sources of the fresh sheets in the packages and treebanks that they were drawn from.

    apt-get download fortunes fortunes-de fortunes-br debian-handbook
    for package in *.deb; do dpkg-deb -x $package unpacked; done
    python -m lab.fresh_text lab/sheets/fresh_en_pt.tsv unpacked --lines tatoeba.eng.gz --treebank dev.conllu.gz \\
        --output fresh.en

A fresh sheet names each source by a digest, since most of these texts have licences of their own. This writes one line
for each row of the sheet, in its order, and an empty line where no sentence of the packages has the digest. Then
`python -m lab.by_hand SHEET MODEL --text fresh fresh.en` measures marks on them.
"""

import argparse
import html
import re
from collections.abc import Iterator
from pathlib import Path

from capsule_mt.commands.console import HelpFormatter, run
from capsule_mt.files.reading import read_lines
from capsule_mt.text.sentences import split_sentences
from lab.by_hand import digest
from lab.records import read_rows

PARAGRAPH = re.compile(r'<div class="para">(.*?)</div>', re.DOTALL)
ELEMENT = re.compile(r"<[^>]+>")
SEPARATOR = re.compile(r"^%\s*$", re.MULTILINE)  # between two fortunes
# lines of a fortune that name who said it
ATTRIBUTION = re.compile(r"\s*(--|—)|.*\t\t")
SENTENCE_OF_TREEBANK = "# text ="


def sentences_of(text: str) -> Iterator[str]:
    """Yield the sentences of a text; their languages end sentences alike."""
    for language in ("en", "de", "pt"):
        for start, end in split_sentences(text, language):
            yield text[start:end].strip()


def fortunes(folder: Path) -> Iterator[str]:
    """Yield the sentences of the fortunes in a folder, without who said them."""
    for file in sorted(folder.rglob("*")):
        if not file.is_file() or file.suffix == ".dat":
            continue
        content = file.read_bytes()
        try:
            text = content.decode()
        except UnicodeDecodeError:
            text = content.decode("latin-1")
        for fortune in SEPARATOR.split(text):
            lines = [line.strip() for line in fortune.splitlines() if not ATTRIBUTION.match(line)]
            yield from sentences_of(" ".join(lines).strip())


def handbook(folder: Path) -> Iterator[str]:
    """Yield the sentences of the Debian Administrator's Handbook, in all its languages."""
    for file in sorted(folder.rglob("*.html")):
        for paragraph in PARAGRAPH.findall(file.read_text("utf-8")):
            yield from sentences_of(" ".join(html.unescape(ELEMENT.sub("", paragraph)).split()))


def candidates(arguments: argparse.Namespace) -> Iterator[str]:
    """Yield the sentences that a sheet may have been drawn from."""
    yield from fortunes(arguments.packages / "usr/share/games/fortunes")
    yield from handbook(arguments.packages / "usr/share/doc/debian-handbook/html")
    for file in arguments.lines:
        yield from (line.strip() for line in read_lines(file))
    for file in arguments.treebank:
        lines = (line for line in read_lines(file) if line.startswith(SENTENCE_OF_TREEBANK))
        yield from (line.removeprefix(SENTENCE_OF_TREEBANK).strip() for line in lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=HelpFormatter)
    parser.add_argument("sheet", type=Path, help="a fresh sheet of lab/sheets")
    parser.add_argument("packages", type=Path, help="the folder that the Debian packages were unpacked into")
    parser.add_argument("--lines", type=Path, nargs="*", default=[], help="files with a sentence on a line")
    parser.add_argument("--treebank", type=Path, nargs="*", default=[], help="CoNLL-U files")
    parser.add_argument("--output", type=Path, required=True, help="the file to write")
    arguments = parser.parse_args()
    digests = [row["source"] for row in read_rows(arguments.sheet)]
    missing, sources = set(digests), dict[str, str]()
    for sentence in candidates(arguments):
        if (name := digest(sentence)) in missing:
            sources[name] = sentence
            missing.discard(name)
    lines = [sources.get(name, "") for name in digests]
    arguments.output.write_text("".join(f"{line}\n" for line in lines), "utf-8")
    print(f"{arguments.output}: {len(digests) - len(missing)} of {len(digests)} sources")


if __name__ == "__main__":
    run(main)
