"""From what a request asks to its answer: languages, limits, and the way of texts through the queue."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, TypeVar

from fastapi import HTTPException, Request

from capsule_mt.catalog.pairs import LanguagePair
from capsule_mt.files.line_failures import Failure
from capsule_mt.formats.apart import Source, StoppedError, Texts
from capsule_mt.formats.units import FormatError, Translated
from capsule_mt.scoring import Translation
from capsule_mt.serve.batching import Batcher, Order, QueueFullError, RequestSettings, StoppingError
from capsule_mt.serve.clients import Doorkeeper, Keys, key_in_head
from capsule_mt.serve.files import Readers, Task
from capsule_mt.serve.metrics import Metrics
from capsule_mt.serve.requests import AUTO, AnyFields, Asked, read_request, unless_gone
from capsule_mt.text.detecting import Detected, Detector
from capsule_mt.text.languages import LANGUAGES

# a character of four bytes is "%F0%9F%98%80" in a form and "\ud83d\ude00" in JSON
LONGEST_ESCAPE = 12
ROOM_FOR_OTHER_FIELDS = 65536
SHORT = 40  # characters in which no language is detected
LONG = 1000  # characters of an order: only one so long is cut into sentences at a time
LONGEST_TAG = 4  # times as long as the markup that it stands for
Submit = Callable[[Batcher, list[str]], Order]
Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Limits:
    """What a request may have.

    Attributes:
        max_characters: the most characters of all its texts together.
        max_beams: the most beams that it may ask for.
        read_seconds: how long it may take to arrive.
        request_seconds: how long its translation may take.
        keys: one of which it must have, if there are any.
        requests_a_minute: how many a client may send; 0 for no limit.
        hosts: the names that it may call the server by; empty for any.
        cors: the origin whose pages may send it, "*" for any, `None` for none.
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
        return LONGEST_ESCAPE * self.max_characters + ROOM_FOR_OTHER_FIELDS


class Answers:
    """What the paths of the API share: who may ask for what, and the way of texts through the queue."""

    def __init__(
        self,
        batchers: Mapping[LanguagePair, Batcher],
        limits: Limits,
        metrics: Metrics,
        detector: Detector | None,
        readers: Readers,
    ) -> None:
        self.batchers, self.limits, self.metrics, self.detector = batchers, limits, metrics, detector
        self._readers = readers
        self.codes = sorted({code for pair in batchers for code in pair})
        self._doorkeeper = Doorkeeper(limits.keys, limits.requests_a_minute)
        self._cutting = asyncio.Lock()

    async def read(self, request: Request, model: type[AnyFields]) -> tuple[AnyFields, str]:
        """Read a request and let it in; return its fields, and the name of its client."""
        asked = await read_request(request, model, self.limits.max_bytes, self.limits.read_seconds)
        client = await self._doorkeeper.admit(request, asked.api_key or key_in_head(request))
        self.check_length(asked.characters)
        return asked, client

    def check_length(self, characters: int) -> None:
        if characters > self.limits.max_characters:
            too_long = f"request ({characters}) exceeds text limit ({self.limits.max_characters})"
            raise HTTPException(400, f"Invalid request: {too_long}")

    def language_of(self, code: str) -> str:
        if code not in self.codes:
            raise HTTPException(400, f"{code[:40]} is not supported; these are: {', '.join(self.codes)}")
        return code

    def detected(self, asked: Asked) -> list[Detected]:
        """Return the language of each text; a short one takes the language of all texts together."""
        if asked.source != AUTO:
            return [Detected(self.language_of(asked.source), 1.0)] * len(asked.texts)
        whole = self.detect(" ".join(asked.texts))
        return [self.detect(text)[0] if len(text) > SHORT else whole[0] for text in asked.texts]

    def detect(self, text: str) -> list[Detected]:
        if self.detector is None or not (found := self.detector.rank(text)):
            raise HTTPException(
                501, f"this server does not detect languages; name the `source`: {', '.join(self.codes)}"
            )
        return found

    async def results(
        self, request: Request, texts: list[str], pairs: Mapping[int, LanguagePair], submit: Submit
    ) -> dict[int, Any]:
        """Queue texts, by their numbers with a pair of languages each; return what is found for each number."""
        numbers: dict[LanguagePair, list[int]] = {}
        for number, pair in pairs.items():
            numbers.setdefault(pair, []).append(number)
        orders: list[Order] = []
        try:
            for pair, own in numbers.items():
                batcher, some = self._batcher_of(pair), [texts[number] for number in own]
                async with self._cutting if sum(map(len, some)) > LONG else nullcontext():
                    orders.append(await asyncio.to_thread(submit, batcher, some))
            work = asyncio.gather(*(asyncio.wrap_future(one) for order in orders for one in order.results))
            answers = await asyncio.wait_for(unless_gone(request, work), self.limits.request_seconds)
        except asyncio.TimeoutError:
            took = "; ".join(order.progress() for order in orders)
            seconds = self.limits.request_seconds
            raise HTTPException(503, f"the translation took longer than {seconds:g} s: {took} were done") from None
        except QueueFullError as error:
            raise HTTPException(503, str(error), headers={"Retry-After": str(error.retry_after)}) from None
        except StoppingError as error:
            raise HTTPException(503, str(error)) from None
        finally:
            for order in orders:
                order.cancel()
        found = dict(zip([number for own in numbers.values() for number in own], answers, strict=True))
        for number, pair in pairs.items():
            if isinstance(found[number], Failure):
                self.metrics.add("failed_texts_total", pair=str(pair))
                raise HTTPException(400, f"text {number} cannot be translated: {found[number].reason}")
            self.metrics.add("texts_total", pair=str(pair))
            self.metrics.add("characters_total", len(texts[number]), pair=str(pair))
        return found

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
        """Return whether the marks of a pair are "verified" or "unverified"; `None` for one that is not translated."""
        batcher = self.batchers.get(pair)
        if batcher is None:
            return None
        return "verified" if batcher.translator.verifies_marks else "unverified"

    async def translations(
        self, request: Request, texts: list[str], sources: list[str], target: str, settings: RequestSettings, client: str
    ) -> list[list[Translation]]:
        """Translate texts of these languages, each once, with alternatives; the target's stay as they are."""

        def submit(batcher: Batcher, some: list[str]) -> Order:
            return batcher.submit(some, settings, client=client)

        pairs = {n: LanguagePair(source, target) for n, source in enumerate(sources) if source != target}
        found = await self.results(request, texts, pairs, submit)
        return [found.get(number, [Translation(text, None, None, ())]) for number, text in enumerate(texts)]

    async def texts_of(self, request: Request, source: Source, client: str) -> Texts:
        """Return what is to be translated of a file."""
        # markup is longer as a tag than as it was: `<b>` becomes `<g1000/>`
        max_characters = LONGEST_TAG * self.limits.max_characters
        return await self._apart(request, client, lambda worker: worker.read(source, max_characters))

    async def translated(
        self, request: Request, file: Source, texts: Texts, languages: LanguagePair, settings: RequestSettings, client: str
    ) -> list[bytes]:
        """Translate a file; return it and its alternatives."""
        units = [unit.text for unit in texts.units]
        settings = settings._replace(keep=texts.keep)
        found = await self.translations(
            request, units, [languages.source] * len(units), languages.target, settings, client
        )
        ranks = range(max(map(len, found), default=1))
        translations = [[Translated(some[min(rank, len(some) - 1)].text) for some in found] for rank in ranks]
        return await self._apart(request, client, lambda worker: worker.write(file, translations))

    async def _apart(self, request: Request, client: str, task: Task[Answer]) -> Answer:
        """Let a process of its own do something with a file of a client."""
        work = asyncio.ensure_future(self._readers.run(client, task))
        try:
            return await asyncio.wait_for(unless_gone(request, work), self.limits.request_seconds)
        except FormatError as error:
            raise HTTPException(400, f"Invalid request: {error}") from None
        except asyncio.TimeoutError:
            seconds = self.limits.request_seconds
            raise HTTPException(503, f"the file waited {seconds:g} s to be read, behind other files") from None
        except StoppedError:
            raise HTTPException(503, "the server is stopping") from None
