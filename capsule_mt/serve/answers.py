"""What the paths of the API share: admission, limits, languages, and the translation of texts and files."""

import asyncio
import threading
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, TypeVar

from fastapi import HTTPException, Request

from capsule_mt.catalog.pairs import LanguagePair
from capsule_mt.files.line_failures import Failure
from capsule_mt.files.sandbox.worker import ReadingStoppedError
from capsule_mt.formats.reading import Source
from capsule_mt.formats.units import FormatError, translated
from capsule_mt.formats.worker import Texts
from capsule_mt.serve.batching import Batcher, Order, QueueFullError, RequestSettings, StoppingError
from capsule_mt.serve.clients import Doorkeeper, Keys, key_in_head
from capsule_mt.serve.files import Readers, Task
from capsule_mt.serve.metrics import Metrics
from capsule_mt.serve.requests import AUTO, TOO_LONG_ADVICE, AnyFields, TextRequest, read_request, unless_gone
from capsule_mt.text.detecting import Detected, Detector
from capsule_mt.text.languages import LANGUAGES, without_region
from capsule_mt.text.languages import language_of as base_language
from capsule_mt.translate.results import Translation

# a character of four bytes is "%F0%9F%98%80" in a form and "\ud83d\ude00" in JSON
MAX_ESCAPE = 12
MAX_OTHER_BYTES = 65536  # of a request, besides its texts
SHORT = 40  # characters up to which a text is too short to detect its language
LONG = 1000  # characters of a request's texts; longer requests are cut into sentences one at a time
MAX_TAG_GROWTH = 4  # `<b>` becomes `<g1000/>`
# Alternatives whose mean log-probability of a token is lower than the likeliest's by more than this are dropped: 41 %
# of them are 20 points of chrF worse than the translation; of the others, 12 % (Tatoeba, en-pt).
MAX_SCORE_GAP = 0.4
LIBRETRANSLATE_CODES = {"pb": "pt-BR", "zt": "zh-Hant"}
Submit = Callable[[Batcher, LanguagePair, list[str]], Order]
Answer = TypeVar("Answer")


@dataclass(frozen=True)
class RequestLimits:
    """The limits of a request.

    Attributes:
        max_characters: the most characters in all its texts, as `counted`, and translations to check together.
        max_beams: the most beams that it may ask for.
        read_seconds: the time limit for the arrival of its body.
        request_seconds: the time limit for a search for its translations, and for reading or writing a file.
        keys: the accepted API keys; without any, requests do not need one.
        requests_a_minute: the requests that a client may send at once, and again in a minute, if its key has no limit
            of its own; 0 sets no limit.
        hosts: the names by which requests may address the server; empty for any.
        cors: the origin whose pages may send requests, "*" for any, `None` for none.
    """

    max_characters: int = 5000
    max_beams: int = 8
    read_seconds: float = 10.0
    request_seconds: float = 60.0
    keys: Keys = field(default_factory=Keys)
    requests_a_minute: int = 0
    hosts: frozenset[str] = frozenset()
    cors: str | None = "*"

    @property
    def max_bytes(self) -> int:
        return MAX_ESCAPE * self.max_characters + MAX_OTHER_BYTES


class Answers:
    """Admits requests, and answers them with the batchers of the language pairs."""

    def __init__(
        self,
        batchers: Mapping[LanguagePair, Batcher],
        limits: RequestLimits,
        metrics: Metrics,
        detector: Detector | None,
        readers: Readers,
    ) -> None:
        self.batchers, self.limits, self.metrics, self.detector = dict(batchers), limits, metrics, detector
        self._readers = readers
        self.doorkeeper = Doorkeeper(limits.keys, limits.requests_a_minute)
        self._cutting, self._detecting = asyncio.Lock(), asyncio.Lock()

    @property
    def codes(self) -> list[str]:
        return sorted({code for pair in self.batchers for code in pair})

    def replace(self, batchers: Mapping[LanguagePair, Batcher], detector: Detector | None) -> None:
        """Answer with these batchers from now on. Call it in the thread of the requests."""
        self.batchers.clear()
        self.batchers.update(batchers)
        self.detector = detector

    async def read(self, request: Request, model: type[AnyFields]) -> tuple[AnyFields, str]:
        """Read a request and admit it; return its fields and the name of its client."""
        fields = await read_request(request, model, self.limits.max_bytes, self.limits.read_seconds)
        client = await self.doorkeeper.admit(request, fields.api_key or key_in_head(request))
        self.check_length(fields.characters)
        return fields, client

    def check_length(self, characters: int) -> None:
        if characters > self.limits.max_characters:
            # LibreTranslate's words, and what to do
            too_long = f"Invalid request: request ({characters}) exceeds text limit ({self.limits.max_characters})"
            raise HTTPException(400, f"{too_long}: {TOO_LONG_ADVICE}")

    def language_of(self, code: str) -> str:
        """Return the served language that a code names: "pt", "pt-BR" and "PT_br" name "pt" or else "por_Latn"."""
        served = {_lower(language): language for language in self.codes}
        tag = LIBRETRANSLATE_CODES.get(code.lower(), code)
        language = without_region(tag)
        for candidate in map(_lower, (code, tag, language)):
            if candidate in served:
                return served[candidate]
        matches = [served_code for served_code in self.codes if base_language(served_code) == base_language(language)]
        if not language.isalpha():  # it names a script: readers of one script may not read another
            matches = []
        if len(matches) != 1:
            raise HTTPException(400, f"{code[:40]} is not supported; these are: {', '.join(self.codes)}")
        return matches[0]

    async def detected(self, fields: TextRequest) -> list[Detected]:
        """Return the stated or detected language of each text; a short one gets that of all texts together."""
        if fields.source != AUTO:
            return [Detected(self.language_of(fields.source), 1.0)] * len(fields.texts)
        joined = await self.detect(" ".join(fields.texts))
        return [(await self.detect(text))[0] if len(text) > SHORT else joined[0] for text in fields.texts]

    async def detect(self, text: str) -> list[Detected]:
        """Return the served languages, the likeliest first; a thread detects them, so that other requests go on."""
        async with self._detecting:  # one at a time
            ranked = [] if self.detector is None else await asyncio.to_thread(self.detector.rank, text)
        if not ranked:
            raise HTTPException(
                501, f"this server does not detect languages; name the `source`: {', '.join(self.codes)}"
            )
        return ranked

    async def results(
        self, request: Request, texts: list[str], pairs: Mapping[int, LanguagePair], submit: Submit
    ) -> dict[int, Any]:
        """Queue the texts at the indices of `pairs`; return the result of each by its index.

        The limit of time is that of all of it: on a busy server, cutting and queueing wait for a thread, too.
        """
        indices_of_pair: dict[LanguagePair, list[int]] = {}
        for index, pair in pairs.items():
            indices_of_pair.setdefault(pair, []).append(index)
        orders: list[Order] = []
        nobody_waits = threading.Event()

        def queue(pair: LanguagePair, pair_texts: list[str]) -> None:
            orders.append(submit(self._batcher_of(pair), pair, pair_texts))
            if nobody_waits.is_set():
                orders[-1].cancel()

        async def answered() -> list[Any]:
            for pair, indices in indices_of_pair.items():
                pair_texts = [texts[index] for index in indices]
                async with self._cutting if sum(map(len, pair_texts)) > LONG else nullcontext():
                    await asyncio.to_thread(queue, pair, pair_texts)
            return await asyncio.gather(*(asyncio.wrap_future(future) for order in orders for future in order.results))

        try:
            work = asyncio.ensure_future(answered())
            answers = await asyncio.wait_for(unless_gone(request, work), self.limits.request_seconds)
        except asyncio.TimeoutError:
            progress = "; ".join(order.progress() for order in orders) or f"0 of {len(pairs)}"
            seconds = self.limits.request_seconds
            raise HTTPException(503, f"the translation took longer than {seconds:g} s: {progress} done") from None
        except QueueFullError as error:
            raise HTTPException(503, str(error), headers={"Retry-After": str(error.retry_after)}) from None
        except StoppingError as error:
            raise HTTPException(503, str(error)) from None
        finally:
            nobody_waits.set()
            for order in orders:
                order.cancel()
        results = dict(zip([index for indices in indices_of_pair.values() for index in indices], answers, strict=True))
        for index, pair in pairs.items():
            if isinstance(results[index], Failure):
                self.metrics.add("failed_texts_total", pair=str(pair))
                raise HTTPException(400, f"text {index} cannot be translated: {results[index].reason}")
        return results

    def count(self, texts: list[str], pairs: Mapping[int, LanguagePair]) -> None:
        """Count the texts of a request in the metrics."""
        for index, pair in pairs.items():
            self.metrics.add("texts_total", pair=str(pair))
            self.metrics.add("characters_total", len(texts[index]), pair=str(pair))

    def _batcher_of(self, pair: LanguagePair) -> Batcher:
        batcher = self.batchers.get(pair)
        if batcher is None:
            source, target = (f"{LANGUAGES.get(code, code)} ({code})" for code in pair)
            pairs = ", ".join(sorted(map(str, self.batchers)))
            raise HTTPException(
                400, f"{target} is not available as a target language from {source}; these are: {pairs}"
            )
        return batcher

    def state_of_marks(self, pair: LanguagePair) -> str | None:
        """Return "verified" or "unverified" for the marks of a pair, or `None` if the pair is not served."""
        batcher = self.batchers.get(pair)
        if batcher is None:
            return None
        return "verified" if batcher.translator.verifies_marks else "unverified"

    async def translations(
        self,
        request: Request,
        texts: list[str],
        sources: list[str],
        target: str,
        settings: RequestSettings,
        client: str,
    ) -> list[list[Translation]]:
        """Translate texts from these languages, with alternatives; a text in the target language stays as it is.

        The best translation is the one that a request without alternatives gets: a second search finds the
        alternatives.
        """

        def submit_with(settings: RequestSettings) -> Submit:
            return lambda batcher, pair, pair_texts: batcher.submit(
                pair_texts, settings._replace(languages=pair), client=client
            )

        pairs = {index: LanguagePair(source, target) for index, source in enumerate(sources) if source != target}
        best = await self.results(request, texts, pairs, submit_with(settings._replace(alternatives=0)))
        self.count(texts, pairs)
        if settings.alternatives:
            search = settings._replace(coverage=False, alignment=False)
            ranked = await self.results(request, texts, pairs, submit_with(search))
            best = {index: [*best[index][:1], *likely(ranked[index])] for index in pairs}
        return [best.get(index, [Translation(text, None, None, ())]) for index, text in enumerate(texts)]

    async def texts_of(self, request: Request, source: Source, client: str) -> Texts:
        """Return the texts of a file to translate."""
        max_characters = MAX_TAG_GROWTH * self.limits.max_characters
        return await self._in_child(request, client, lambda worker: worker.read(source, max_characters))

    async def translated(
        self,
        request: Request,
        file: Source,
        texts: Texts,
        languages: LanguagePair,
        settings: RequestSettings,
        client: str,
    ) -> list[bytes]:
        """Translate a file; return it and its alternatives."""
        units = [unit.text for unit in texts.units]
        settings = settings._replace(keep=texts.keep)
        translations = await self.translations(
            request, units, [languages.source] * len(units), languages.target, settings, client
        )
        ranks = range(max(map(len, translations), default=1))
        # a unit with fewer alternatives repeats its last one
        ranked = [
            [
                translated(unit, alternatives[min(rank, len(alternatives) - 1)])
                for unit, alternatives in zip(texts.units, translations, strict=True)
            ]
            for rank in ranks
        ]
        return await self._in_child(request, client, lambda worker: worker.write(file, ranked))

    async def _in_child(self, request: Request, client: str, task: Task[Answer]) -> Answer:
        """Run a task with a client's file in a child process."""
        work = asyncio.ensure_future(self._readers.run(client, task))
        try:
            return await asyncio.wait_for(unless_gone(request, work), self.limits.request_seconds)
        except FormatError as error:
            raise HTTPException(400, f"Invalid request: {error}") from None
        except asyncio.TimeoutError:
            seconds = self.limits.request_seconds
            raise HTTPException(503, f"the file waited {seconds:g} s to be read, behind other files") from None
        except ReadingStoppedError:
            raise HTTPException(503, "the server is stopping") from None


def likely(translations: list[Translation]) -> list[Translation]:
    """Return the translations of a text without those that are much less probable than the likeliest one."""
    scores = [0.0 if translation.score is None else translation.score for translation in translations]
    return [
        translation
        for translation, score in zip(translations, scores, strict=True)
        if score >= max(scores) - MAX_SCORE_GAP
    ]


def _lower(code: str) -> str:
    return code.lower().replace("_", "-")
