"""Words, in languages that put spaces between them, and links between the words of two sentences.

A link is (source position, target position), counted from 0.
"""

import re
import shlex
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from capsule_mt.text.reading import read_lines

Links = frozenset[tuple[int, int]]
SentencePair = tuple[Sequence[str], Sequence[str]]
# Splits French and English clitics from the following word
_TOKEN = re.compile(r"\d+(?:[.,]\d+)*|\w+(?:'(?=\w))?|[^\w\s]")


def split_words(text: str) -> list[str]:
    """Split into words, numbers and marks; an elided word keeps its apostrophe: "l'eau, 3,5 l." -> l' eau , 3,5 l ."""
    return _TOKEN.findall(text.replace("\u2019", "'"))


def word_spans(text: str) -> list[tuple[str, tuple[int, int]]]:
    """Return the words of `split_words`, each with the characters of the text that it stands for."""
    return [(match[0], match.span()) for match in _TOKEN.finditer(text.replace("\u2019", "'"))]


def word_pairs(sources: Sequence[str], targets: Sequence[str]) -> list[SentencePair]:
    """Split parallel lines into words."""
    return [(split_words(source), split_words(target)) for source, target in zip(sources, targets, strict=True)]


def word_stem(word: str, length: int = 4) -> str:
    """Return the first letters of a word in lower case; the aligner shares statistics between equal stems."""
    lowered = word.lower()
    return lowered[:length] if lowered.isalpha() else lowered


def grow_diag_final_and(forward: Links, backward: Links) -> Links:
    """Symmetrise the links of two directions as Koehn et al. 2003, in the order of Moses' implementation.

    Start from the links in both directions. Add neighbours, diagonal ones included, that one direction has and of
    which at least one word has no link yet. Last, add links of one direction of which neither word has a link.
    """
    union = forward | backward
    links = set(forward & backward)
    sources, targets = ({link[side] for link in links} for side in (0, 1))
    neighbours = [(-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1)]
    grown = True
    while grown:
        grown = False
        for source, target in sorted(links):
            for down, right in neighbours:
                link = (source + down, target + right)
                if link in union and link not in links and (link[0] not in sources or link[1] not in targets):
                    links.add(link)
                    sources.add(link[0])
                    targets.add(link[1])
                    grown = True
    for direction in (forward, backward):
        for link in sorted(direction - links):
            if link[0] not in sources and link[1] not in targets:
                links.add(link)
                sources.add(link[0])
                targets.add(link[1])
    return frozenset(links)


def align_by_command(pairs: Sequence[SentencePair], command: str = "eflomal-align") -> list[Links]:
    """Return the links of an external aligner, eflomal by default, joined by `grow_diag_final_and`.

    Run `command -s SOURCE -t TARGET -f FORWARD -r REVERSE`: it reads two files of tokenised lines and writes the links
    of both directions, in lines such as "0-0 1-2".
    """
    program, *arguments = shlex.split(command)
    with tempfile.TemporaryDirectory() as folder:
        names = {option: Path(folder, option) for option in "stfr"}
        for option, side in (("s", 0), ("t", 1)):
            names[option].write_text("".join(" ".join(pair[side]) + "\n" for pair in pairs), encoding="utf-8")
        options = [part for option, path in names.items() for part in (f"-{option}", str(path))]
        try:
            subprocess.run([program, *arguments, *options], check=True, capture_output=True, text=True)
        except FileNotFoundError as error:
            raise ValueError(f"`command` {command!r} is not on this machine; install it or use WordAligner") from error
        except subprocess.CalledProcessError as error:
            raise ValueError(f"`command` {command!r} failed: {error.stderr.strip()[-500:]}") from error
        forward, backward = (_read_links(names[option]) for option in "fr")
    return [grow_diag_final_and(*directions) for directions in zip(forward, backward, strict=True)]


def _read_links(path: Path) -> list[Links]:
    return [
        frozenset((int(source), int(target)) for source, target in (link.split("-") for link in line.split()))
        for line in read_lines(path)
    ]
