"""A translator for tests of the server, which need no model."""

import re
import threading
import time
from dataclasses import replace

from capsule_mt import Coverage, Translation, Word
from capsule_mt.checks.rules import checks_of
from capsule_mt.coverage.results import SentenceCoverage, TargetWord
from capsule_mt.engine.stopping import raise_if_stopped
from capsule_mt.text.rewriting import Edit
from capsule_mt.text.segments import Document
from tests.light.text.fakes import plain_piece


def until(condition):
    """Wait until another thread has made a condition true."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


class Upper:
    """Translates into upper case and leaves out words with a "q", unless it has several beams.

    A sentence ends with a semicolon. One with "broken" is an error. `calls` are the sentences of each batch, and the
    options that tell them apart. A batch waits until `free` is set, then takes `seconds`; one with a word "slow" lasts
    until it is stopped or `freed_slow` is set. If it `verifies`, words that the text lacks are made up.
    """

    tokenizes_in_threads = True
    precision = None

    def __init__(self, *, seconds: float = 0.0, verifies: bool = False) -> None:
        self.seconds = seconds
        self.has_reverse = self.verifies_marks = self.gives_support = verifies
        self.calls, self.free, self.freed_slow = [], threading.Event(), threading.Event()
        self.free.set()

    def plan(self, options):
        return options

    def documents(self, texts, options):
        cut = []
        for text in texts:
            matches = re.finditer(r"[^;]+;?", text)
            pieces = [plain_piece(text, match.span(), [0] * len(match[0].split())) for match in matches]
            cut.append(Document(text, pieces=pieces))
        return cut

    def translate_pieces(self, pieces, options):
        texts = [piece.text for piece in pieces]
        beams = options.generate_kwargs.get("num_beams")
        self.calls.append((texts, {"coverage": options.coverage, "num_beams": beams,
                                   "languages": (options.src_lang, options.tgt_lang)}))  # fmt: skip
        self._wait(texts)
        return [(text if beams else re.sub(r"\S*q\S* ?", "", text)).upper() for text in texts]

    def put_together(self, documents, outputs, options):
        returned = options.generate_kwargs.get("num_return_sequences", 1)
        text = "".join(outputs)
        coverage = self._coverage(documents[0].text, text.lower()) if options.coverage else None
        alignment = self._alignment(documents[0].text, text.lower()) if options.alignment else None
        edits = tuple(Edit("q", *match.span(), "", "q") for match in re.finditer("q", documents[0].text))
        return [
            [
                Translation(text + "'" * rank, None, coverage, (), 0.0, alignment, edits=edits)
                for rank in range(returned)
            ]
        ]

    @staticmethod
    def _alignment(text, translation):
        """Pair each word of a text with the first equal word of its translation."""
        targets = translation.split()
        indices = enumerate(map(str.lower, text.split()))
        return tuple((index, targets.index(word)) for index, word in indices if word in targets)

    def score(self, texts, translations, *, coverage, alignment, batch_size, src_lang=None, tgt_lang=None):
        self.calls.append((list(zip(texts, translations, strict=True)), {"languages": (src_lang, tgt_lang)}))
        self._wait(texts)
        results = []
        for text, translation in zip(texts, translations, strict=True):
            checked = self._coverage(text, translation.lower())
            links = self._alignment(text, translation.lower()) if alignment else None
            results.append(Translation(translation, None, checked, (), 0.0, links))
        return results

    def _wait(self, texts):
        assert self.free.wait(120)
        threading.Event().wait(self.seconds)
        while any("slow" in text for text in texts) and not self.freed_slow.wait(0.005):
            raise_if_stopped()
        if any("broken" in text for text in texts):
            raise ValueError("a broken text")

    def _coverage(self, text, translation):
        words = []
        for match in re.finditer(r"\w+|[^\w\s]", text):
            is_left = match[0].lower() not in translation.lower()
            words.append(Word(match[0], *match.span(), 0.0 if is_left else 1.0, is_left))
        score = sum(word.covered for word in words) / max(len(words), 1)
        sentences = (SentenceCoverage(0, len(text), score),) if words else ()
        if not self.has_reverse:
            return Coverage(score, tuple(words), sentences, (), method="attention")
        matches = list(re.finditer(r"\w+", translation))
        made_up = [match[0].lower() not in text.lower() for match in matches]
        target = tuple(
            TargetWord(match[0], *match.span(), 1.0 - marked, marked)
            for match, marked in zip(matches, made_up, strict=True)
        )
        support = 1 - sum(made_up) / max(len(made_up), 1)
        return Coverage(score, tuple(words), sentences, (), 0.7, support, target, method="verified")


class Checked(Upper):
    """An `Upper` that verifies its marks and also checks by rule."""

    def __init__(self):
        super().__init__(verifies=True)

    def _coverage(self, text, translation):
        # with a full stop, a text in lowercase is no copy of its source; the answer in capitals is none, either
        return replace(super()._coverage(text, translation), checks=checks_of(text, f"{translation}.", "en", "de"))
