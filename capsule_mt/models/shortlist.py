"""Lexical shortlists: the target tokens that are scored for a source; all others are skipped.

As in Marian and CTranslate2: the most likely translations of each source token, and the most frequent target tokens.
"""

import mmap
import os
import re
import sys
from array import array
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import islice, pairwise

from capsule_mt.engine.library import Lexicon, longest_list, narrowed
from capsule_mt.engine.program import UnsupportedModelError
from capsule_mt.engine.request import JointCandidates
from capsule_mt.models.opening import open_file
from capsule_mt.models.weights import CheckpointError, SafetensorsFile, write_safetensors

FILE_NAME = "shortlist.safetensors"
MARIAN_MARK = 0xF11A48D5013417F5
MARIAN_MULTIPLE = 8
NAMES = ("starts", "tokens", "frequent")
COUNT = re.compile("[0-9]{1,9}")  # of tokens, in the metadata
TEXT_BYTES = 4096
TEXT_LINE = rb"[^\s\0]+[ \t][^\s\0]+[ \t][0-9.eE+-]+\r?\n"
COMPRESSED = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"BZh", b"\xfd7zXZ")  # gzip, zstd, bzip2, xz
HEADER_BYTES = 4096  # a safetensors file of three tensors has a header of a few hundred bytes


def is_shortlist(path: str | os.PathLike[str]) -> bool:
    """Return whether a file begins as a shortlist, of this package or of Marian."""
    if not os.path.isfile(path):
        return False
    with open(path, "rb") as stream:
        beginning = stream.read(HEADER_BYTES)
    is_safetensors = beginning[8:9] == b"{" and all(f'"{name}"'.encode() in beginning for name in NAMES)
    return is_safetensors or beginning[:8] == MARIAN_MARK.to_bytes(8, sys.byteorder)


class Shortlist:
    """The likely translations of each source token.

    starts: [source vocabulary + 1], the offset of each token's translations in `tokens`.
    tokens: [translations], the most likely translations of each source token.
    frequent: tokens that every translation may have.
    vocabulary: how many target tokens there are.
    multiple: as in Marian, the number of candidates is rounded up to a multiple of this, with the tokens that follow
        the frequent ones in the vocabulary.

    A memoryview has its numbers in int32.
    """

    def __init__(
        self,
        starts: "Sequence[int] | memoryview",
        tokens: "Sequence[int] | memoryview",
        frequent: Sequence[int],
        vocabulary: int,
        multiple: int = 1,
    ) -> None:
        self.vocabulary, self.multiple = vocabulary, multiple
        try:
            self.starts, self.frequent = _int32(starts), array("i", frequent)
            numbers = tokens if isinstance(tokens, memoryview) else array("i", tokens)
            if not self.starts or self.starts[0] != 0 or self.starts[-1] != len(numbers):
                raise ValueError("offsets that do not ascend to the number of tokens")
            self._max_translations = longest_list(self.starts)
            self.tokens = narrowed(numbers, vocabulary)
            narrowed(self.frequent, vocabulary)
        except (ValueError, OverflowError) as error:
            raise ValueError(f"`shortlist` is damaged: {error}") from None
        self._frequent = frozenset(self.frequent)

    @classmethod
    def of_translations(
        cls, translations: Mapping[int, Sequence[int]], frequent: Sequence[int], vocabularies: tuple[int, int]
    ) -> "Shortlist":
        """Make a shortlist from the translations of each source token, and the sizes of both vocabularies."""
        starts, tokens = [0], array("i")
        for token in range(vocabularies[0]):
            tokens.extend(translations.get(token, ()))
            starts.append(len(tokens))
        return cls(starts, tokens, frequent, vocabularies[1])

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Shortlist":
        """Load a file, or the file in the folder of a checkpoint."""
        file = os.fspath(path)
        file = os.path.join(file, FILE_NAME) if os.path.isdir(file) else file
        if not os.path.lexists(file):
            raise FileNotFoundError(
                f"there is no shortlist {file}: `capsule-mt shortlist CHECKPOINT SOURCE TARGET` of hf-capsule-mt "
                "makes one"
            )
        refuse_text(file)
        stored = SafetensorsFile(file)
        defaults = {"vocabulary": "", "multiple": "1"}
        numbers = [str(stored.metadata.get(name, default)) for name, default in defaults.items()]
        if not all(map(COUNT.fullmatch, numbers)) or not all(name in stored for name in NAMES):
            raise CheckpointError(f"{file}: is not a shortlist")
        vocabulary, multiple = map(int, numbers)
        lists: list[memoryview] = []
        for name in NAMES:
            if stored.dtype(name) != "I32" or len(stored.shape(name)) != 1:
                raise CheckpointError(f"{file}: `{name}` must be a list of I32, got {stored.dtype(name)}")
            lists.append(memoryview(stored.content(name)).cast("i"))
        starts, tokens, frequent = lists
        try:
            return cls(starts, tokens, frequent, vocabulary, max(multiple, 1))
        except ValueError as error:
            raise CheckpointError(f"{file}: {error}") from None

    @classmethod
    def of_marian(cls, file: str | os.PathLike[str], vocabularies: tuple[int, int]) -> "Shortlist":
        """Read a `lex.*.bin` of Marian: six uint64 (a mark, a checksum, how many frequent tokens, how many
        translations of a token, the sizes of the lists that follow), where the translations of each source token begin
        (uint64), and the translations (uint32).
        """
        file = os.fspath(file)
        starts = array("Q")
        with open_file(file) as stream:
            size = os.fstat(stream.fileno()).st_size
            numbers = array("Q", stream.read(48).ljust(48, b"\0"))
            mark, _, frequent, _, num_starts, num_tokens = numbers
            if mark != MARIAN_MARK:
                refuse_text(file)
            if mark != MARIAN_MARK or size != 48 + 8 * num_starts + 4 * num_tokens:
                raise CheckpointError(f"{file}: is not a shortlist of Marian, or it is cut off")
            starts.fromfile(stream, num_starts)
            mapped = mmap.mmap(stream.fileno(), size, access=mmap.ACCESS_READ)  # copying them takes longer
            tokens = memoryview(mapped)[size - 4 * num_tokens :].cast("i")
        if not 0 < num_starts <= vocabularies[0] + 1 or frequent > vocabularies[1]:
            raise CheckpointError(f"{file}: is for other vocabularies, or it is damaged")
        # the file may end before the last source tokens
        starts.extend([starts[-1]] * (vocabularies[0] + 1 - len(starts)))
        try:
            return cls(starts, tokens, range(frequent), vocabularies[1], MARIAN_MULTIPLE)
        except ValueError as error:
            raise CheckpointError(f"{file}: {error}") from None

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a safetensors file of int32."""
        lists = {name: array("i", getattr(self, name)) for name in NAMES}
        shapes = {name: ("I32", [len(ids)]) for name, ids in lists.items()}
        facts = {"vocabulary": str(self.vocabulary), "multiple": str(self.multiple)}
        write_safetensors(path, shapes, lambda name: lists[name], facts)

    def save_as_marian(self, path: str | os.PathLike[str], vocabularies: Sequence[int]) -> None:
        """Write a `lex.*.bin` of Marian for the first tokens of each vocabulary: see `of_marian`.

        Marian's frequent tokens are the first ones of the vocabulary: others are listed with each source token.
        """
        tokens, starts, count = array("i"), array("Q", [0]), 0
        while count < len(self.frequent) and self.frequent[count] == count:
            count += 1
        further = self.frequent[count:]
        for source in range(vocabularies[0]):
            translations = {*self.tokens[self.starts[source] : self.starts[source + 1]], *further}
            tokens.extend(sorted(token for token in translations if token < vocabularies[1]))
            starts.append(len(tokens))
        max_translations = max((end - start for start, end in pairwise(starts)), default=0)
        header = array("Q", [MARIAN_MARK, 0, count, max_translations, len(starts), len(tokens)])
        with open(path, "wb") as stream:
            for part in (header, starts, array("I", tokens)):
                stream.write(part.tobytes())

    def check(self, num_source_tokens: int, num_target_tokens: int) -> None:
        """Refuse the vocabularies of another model."""
        if (len(self.starts) - 1, self.vocabulary) != (num_source_tokens, num_target_tokens):
            raise ValueError(
                f"`shortlist` is for vocabularies of {len(self.starts) - 1} and {self.vocabulary} tokens, but the "
                f"model's are of {num_source_tokens} and {num_target_tokens}"
            )

    def of_source(self, source: Sequence[int], *extra_tokens: int) -> list[int]:
        """Return the tokens that the translation of a source may have, ascending, with these extra ones."""
        candidates = set(self._frequent)
        for token in set(source):
            candidates.update(self.tokens[self.starts[token] : self.starts[token + 1]])
        following = range(len(self.frequent), self.vocabulary)
        missing = -len(candidates) % self.multiple
        candidates.update(islice((token for token in following if token not in candidates), missing))
        candidates.update(token for token in extra_tokens if token >= 0)
        return sorted(candidates)

    def of_sources(self, sources: Sequence[Sequence[int]], extra_tokens: Sequence[Sequence[int]]) -> JointCandidates:
        """Return the same for several sources, each with its extra tokens; in C, for speed."""
        return self._lexicon.candidates_of(sources, extra_tokens)

    @cached_property
    def _lexicon(self) -> Lexicon:
        return Lexicon(self.starts, self.tokens, self.frequent, self.vocabulary, self.multiple, self._max_translations)


def refuse_text(file: str) -> None:
    """Refuse a compressed file, and a shortlist of Marian in text, with lines `target source probability`."""
    with open_file(file) as stream:
        beginning = stream.read(TEXT_BYTES)
    if beginning.startswith(COMPRESSED):
        raise UnsupportedModelError(f"{file}: is compressed: unpack it; only shortlists in binary form are read")
    if re.match(TEXT_LINE, beginning):
        raise UnsupportedModelError(
            f"{file}: is a shortlist in text, only binary ones are read: convert it by `marian-conv --shortlist "
            f"{os.path.basename(file)} 100 100 0 --dump-shortlist lex.s2t.bin --vocabs SOURCE TARGET`"
        )


def _int32(numbers: "Sequence[int] | memoryview") -> "array[int]":
    """Copy numbers; those of a memoryview at once, since reading 30,000 one by one takes a millisecond."""
    copy = array("i", () if isinstance(numbers, memoryview) else numbers)
    if isinstance(numbers, memoryview):
        copy.frombytes(bytes(numbers))
    return copy
