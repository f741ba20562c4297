"""Dynamic batching: the sentences that requests have queued are translated together, fairly among their clients.

A client is what has asked: an API key, or an address. Costs are tokens. The next batch is begun by the client that has
had least; one that has waited gets no credit for it. Two threads translate. The second one begins when a batch of the
first takes long, so that a long sentence does not hold up short ones for longer than twice their own time. Whoever's
batches take much longer than usual is slow until one of them does not: one of the threads translates the sentences of
slow clients, a batch at a time, and the other one those of all others.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from math import ceil
from typing import Any, NamedTuple, cast

from capsule_mt.coverage.names import Marks
from capsule_mt.coverage.options import CoverageOptions
from capsule_mt.engine.stopping import Stop, StoppedError
from capsule_mt.files.line_failures import PROBE, Failure, describe, is_of_line, translate_lines
from capsule_mt.text.segments import Document, Piece
from capsule_mt.translate.options import TranslationOptions
from capsule_mt.translator import DEFAULT_COVERAGE_WEIGHT, Translator

MOST_REPEATED = 24  # tokens; of what repeats itself for longer, nobody needs the rest
SMOOTHING = 0.1  # of running means
PATIENCE = 0.03  # seconds that a batch may take before the other thread begins one
MOST_TOKENS = 1024  # of a batch, so that one of long sentences ends soon
SHARED_BATCH = 8  # the most sentences of a batch of several clients, or as many as there are clients
ALIKE = (2, 16)  # of the sentences of a batch, one may have 2 n + 16 tokens where another has n
# a batch takes long when it takes so much longer than is usual, of a sentence of at most so many tokens
SLOW, SLOW_TOKENS, SLOW_SECONDS = 4, 16, 0.1
MOST_CLIENTS = 1024  # whose costs are remembered
CHARACTERS_PER_TOKEN = 3  # of texts that are not cut into sentences here
SHARE_OF_QUEUE = 4  # a client may fill so much less of the queue than all of them


class QueueFullError(Exception):
    """There is no room for these texts now; `retry_after` is when there should be, in seconds."""

    def __init__(self, retry_after: int) -> None:
        super().__init__(f"the server is busy; try again in {retry_after} s")
        self.retry_after = retry_after


class StoppingError(Exception):
    """The server stops: it takes no more texts, or had no time for these."""

    def __init__(self) -> None:
        super().__init__("the server is stopping")


class Settings(NamedTuple):
    """What is asked of a text; texts of equal settings are translated together."""

    coverage: bool = False
    search: tuple[tuple[str, Any], ...] = ()  # names and values of search options
    alternatives: int = 0
    keep: tuple[str, ...] = ()
    is_check: bool = False
    marks: Marks | None = None

    @property
    def num_beams(self) -> int:
        return max(dict(self.search).get("num_beams", 1), 1 + self.alternatives)


PLAIN = Settings()


@dataclass(eq=False)
class Text:
    """A text of a request; `translation` is given where it is to be checked, and then there is no `document`.

    found: what is found for each of its sentences, `None` until then.
    """

    text: str
    settings: Settings
    options: TranslationOptions
    document: Document | None = None
    translation: str = ""
    found: list[Any] = field(default_factory=list)
    result: "Future[Any]" = field(default_factory=Future)

    def finish(self, result: Any) -> None:
        """Give the result or the exception to who waits, unless nobody does any more."""
        with suppress(InvalidStateError):
            if isinstance(result, BaseException):
                self.result.set_exception(result)
            else:
                self.result.set_result(result)


@dataclass(eq=False)
class Sentence:
    """A unit of the queue: a `piece` of a text, or `None` for a pair to be checked."""

    of: Text
    place: int
    piece: Piece | None
    cost: int
    client: "Client"
    is_alone: bool = False  # no batch has it beside other clients' sentences
    arrived: float = field(default_factory=time.monotonic)

    @property
    def is_wanted(self) -> bool:
        return not self.of.result.done()


@dataclass(eq=False)
class Client:
    """Who has asked: the tokens that it has had, what waits, and whether it is slow."""

    served: float = 0.0
    is_slow: bool = False
    waiting: deque[Sentence] = field(default_factory=deque)

    @property
    def queued(self) -> int:
        return sum(sentence.cost for sentence in self.waiting)


@dataclass(eq=False)
class Order:
    """The texts of a request, on their way."""

    texts: list[Text]
    sentences: list[Sentence]

    @property
    def results(self) -> "list[Future[Any]]":
        return [text.result for text in self.texts]

    def cancel(self) -> None:
        """Translate nothing of it any more."""
        for text in self.texts:
            text.result.cancel()

    def progress(self) -> str:
        """Say how much of it is done."""
        done = [one for one in self.sentences if one.of.found[one.place] is not None]
        tokens, of = (sum(one.cost for one in some) for some in (done, self.sentences))
        return f"{len(done)} of {len(self.sentences)} sentences, {tokens} of {of} tokens"


@dataclass(eq=False)
class Batch:
    sentences: list[Sentence]
    is_slow: bool  # of slow clients
    stop: Stop = field(default_factory=Stop)
    started: float = field(default_factory=time.monotonic)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.started

    @property
    def tokens(self) -> int:
        return sum(sentence.cost for sentence in self.sentences)

    @property
    def served(self) -> float:
        """How many tokens the client has had that has had most."""
        return max(sentence.client.served for sentence in self.sentences)

    @property
    def is_shared(self) -> bool:
        return any(sentence.client is not self.sentences[0].client for sentence in self.sentences)


class Batcher:
    """Queues the sentences of requests and translates them in batches.

    A batch starts as soon as `max_batch` sentences wait, or the first of them has waited for `wait_seconds`. The
    sentences of a client keep their order; a text that cannot be translated is a `Failure` and costs the others
    nothing. What nobody waits for any more is not translated, and stopped if it was begun.

    Args:
        translator: called by several threads.
        options: of each call of the translator, such as its languages.
        max_batch: the most sentences that go through the model at once.
        max_queue: the most tokens that wait; a quarter of it for one client.
    """

    def __init__(
        self,
        translator: Translator,
        *,
        options: Mapping[str, Any] | None = None,
        max_batch: int = 32,
        wait_seconds: float = 0.005,
        max_queue: int = 65536,
    ) -> None:
        self.translator, self.options = translator, options or {}
        self.max_batch, self.max_queue = max_batch, max_queue
        self.wait_seconds = wait_seconds
        self._clients: dict[str, Client] = {}
        self._clock = 0.0  # what the client whose turn it was had been served
        self._running: list[Batch] = []
        self._changed = threading.Condition()
        self._tokenizing: AbstractContextManager[Any] = (
            nullcontext() if translator.tokenizes_in_threads else threading.Lock()
        )
        self._stopping = False
        self._seconds_per_token = 0.0
        self._workers = [threading.Thread(target=self._work, name="batcher", daemon=True) for _ in range(2)]
        for thread in (*self._workers, threading.Thread(target=self._watch, name="watcher", daemon=True)):
            thread.start()

    # ---- what requests call
    def submit(self, texts: Sequence[str], settings: Settings = PLAIN, *, client: str = "") -> Order:
        """Queue all of the texts, or none of them if there is no room.

        Each gives a list of `Translation`s, the best first, or a `Failure`.
        """
        options = self._options(settings)
        found = [Text(text, settings, options) for text in texts]
        for one in found:
            _finish_if_failed(one, self._cut)
        return self._queue(found, client)

    def _cut(self, text: Text) -> list[Piece]:
        """Cut a text into sentences."""
        with self._tokenizing:
            (text.document,) = self.translator.documents([text.text], text.options)
        return text.document.pieces

    def submit_checks(
        self, texts: Sequence[str], translations: Sequence[str], *, marks: Marks | None = None, client: str = ""
    ) -> Order:
        """Queue given translations, to find what they left out; each gives a `Coverage` or a `Failure`."""
        settings = Settings(coverage=True, is_check=True, marks=marks)
        pairs = zip(texts, translations, strict=True)
        options = self._options(settings)
        return self._queue([Text(text, settings, options, translation=given) for text, given in pairs], client)

    def _options(self, settings: Settings) -> TranslationOptions:
        beams, search = settings.num_beams, dict(settings.search) | {"most_repeated": MOST_REPEATED}
        if "num_beams" in search or beams > 1:
            search |= {"num_beams": beams, "num_return_sequences": 1 + settings.alternatives}
        weight = DEFAULT_COVERAGE_WEIGHT if beams > 1 else None
        # words that were made up are found where there is a model of the other direction
        coverage = CoverageOptions(weight=weight, marks=settings.marks, support=self.translator.has_reverse)
        return self.translator.completed(
            TranslationOptions(
                batch_size=self.max_batch,
                coverage=coverage if settings.coverage else None,
                scores=False,
                keep=settings.keep,
                generate_kwargs=search,
                **self.options,
            )
        )

    def _queue(self, texts: list[Text], name: str) -> Order:
        order = Order(texts, [])
        with self._changed:
            if self._stopping:
                raise StoppingError
            client = self._clients.get(name) or Client()
            order.sentences = [sentence for text in texts for sentence in _sentences(text, client)]
            cost = sum(sentence.cost for sentence in order.sentences)
            queued, waits = sum(one.queued for one in self._clients.values()), client.queued
            # the first request of a client always fits, however long it is
            if queued + cost > self.max_queue or (waits and waits + cost > self.max_queue // SHARE_OF_QUEUE):
                raise QueueFullError(max(1, ceil(queued * self._seconds_per_token)))
            if not waits:
                client.served = max(client.served, self._clock)
            self._clients[name] = client
            client.waiting.extend(order.sentences)
            if len(self._clients) > MOST_CLIENTS:
                idle = {id(one) for one in self._idle_clients() if not one.waiting}
                self._clients = {name: one for name, one in self._clients.items() if id(one) not in idle}
            self._changed.notify_all()
        for text in texts:
            if not text.found and not text.result.done():  # a blank one
                _finish_if_failed(text, self._put_together)
        return order

    def __len__(self) -> int:
        """How many sentences wait."""
        return sum(len(client.waiting) for client in list(self._clients.values()))

    @property
    def is_alive(self) -> bool:
        return all(worker.is_alive() for worker in self._workers) and not self._stopping

    def close(self, seconds: float | None = None) -> bool:
        """Translate what is queued, then end the threads; return whether that took no longer than these seconds."""
        deadline = None if seconds is None else time.monotonic() + seconds
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        for worker in self._workers:
            worker.join(None if deadline is None else max(0.0, deadline - time.monotonic()))
        return not any(worker.is_alive() for worker in self._workers)

    def abandon(self) -> None:
        """Take no more texts, stop what is being translated, and give a `StoppingError` to all who wait."""
        with self._changed:
            self._stopping = True
            waiting = [sentence for client in self._clients.values() for sentence in client.waiting]
            for sentence in (*waiting, *(one for batch in self._running for one in batch.sentences)):
                sentence.of.finish(StoppingError())
            self._clients.clear()
            for batch in self._running:
                batch.stop.set()
            self._changed.notify_all()

    # ---- the choice of a batch; all of these hold the lock
    def _idle_clients(self) -> list[Client]:
        """Return the clients of whom nothing is being translated: each has one batch at a time."""
        at_work = {id(sentence.client) for batch in self._running for sentence in batch.sentences}
        return [client for client in self._clients.values() if id(client) not in at_work]

    def _next_batch(self) -> Batch | None:
        """Wait for sentences and return a batch; `None` when the work is over."""
        with self._changed:
            while True:
                for client in self._clients.values():
                    while client.waiting and not client.waiting[0].is_wanted:
                        client.waiting.popleft()
                waiting = [client.waiting for client in self._clients.values() if client.waiting]
                if self._stopping and not waiting:
                    return None
                wait = self._seconds_to_wait(waiting)
                if wait is not None and wait <= 0 and (batch := self._fill()):
                    self._running.append(batch)
                    self._changed.notify_all()
                    return batch
                self._changed.wait(wait if wait is None or wait > 0 else PATIENCE)

    def _seconds_to_wait(self, waiting: list[deque[Sentence]]) -> float | None:
        """Return for how long no batch can start, or `None` if nothing waits."""
        if not waiting:
            return None
        if self._stopping or sum(map(len, waiting)) >= self.max_batch:
            return 0.0
        return min(queue[0].arrived for queue in waiting) + self.wait_seconds - time.monotonic()

    def _fill(self) -> Batch | None:
        """Return the next batch, or `None` if nothing may start beside what runs."""
        has_slow = any(batch.is_slow for batch in self._running)
        others = [batch.seconds for batch in self._running if not batch.is_slow]
        for is_slow in (True, False) if others else (False, True):
            if has_slow if is_slow else others and min(others) < PATIENCE:
                continue
            clients = [one for one in self._idle_clients() if one.waiting and one.is_slow == is_slow]
            if clients and (taken := self._take(sorted(clients, key=lambda client: client.served))):
                return Batch(taken, is_slow)
        return None

    def _take(self, clients: list[Client]) -> list[Sentence]:
        """Take sentences of clients in turns, those that fit the first one, until there is no room for more."""
        first, most, tokens = clients[0].waiting[0], self.max_batch, 0
        self._clock = max(self._clock, clients[0].served)
        taken: list[Sentence] = []
        while clients:
            for client in list(clients):
                sentence = client.waiting[0]
                is_full = len(taken) >= most or (taken and tokens + sentence.cost > MOST_TOKENS)
                if is_full or not _fit(sentence, first):
                    clients.remove(client)
                    continue
                client.waiting.popleft()
                if sentence.is_wanted:
                    tokens += sentence.cost
                    client.served += sentence.cost * sentence.of.settings.num_beams
                    taken.append(sentence)
                if not client.waiting:
                    clients.remove(client)
            sharers = len({id(sentence.client) for sentence in taken})
            if sharers > 1:
                most = min(self.max_batch, max(SHARED_BATCH, sharers))
        return taken

    # ---- the threads
    def _watch(self) -> None:
        """Stop batches that nobody waits for, and of two that take long while others wait the one that had more."""
        with self._changed:
            while not (self._stopping and not self._running):
                for batch in self._running:
                    if not any(sentence.is_wanted for sentence in batch.sentences):
                        batch.stop.set()
                all_take_long = all(batch.is_slow or self._takes_long(batch) for batch in self._running)
                may_stop = [batch for batch in self._running if not batch.is_slow]
                others_wait = any(client.waiting and not client.is_slow for client in self._idle_clients())
                if len(self._running) == len(self._workers) and all_take_long and may_stop and others_wait:
                    max(may_stop, key=lambda batch: batch.served).stop.set()
                self._changed.wait(PATIENCE if self._running else None)

    def _takes_long(self, batch: Batch) -> bool:
        tokens = [min(sentence.cost, SLOW_TOKENS) for sentence in batch.sentences]
        usual = self._seconds_per_token * (sum(tokens) if batch.is_shared else max(tokens))
        return batch.seconds > max(SLOW_SECONDS, SLOW * usual)

    def _work(self) -> None:
        while batch := self._next_batch():
            try:
                self._translate(batch)
            except StoppedError:
                self._put_back(batch)
            except BaseException as error:  # no text can be translated: each request gets the error
                for sentence in batch.sentences:
                    sentence.of.finish(error)
            with self._changed:
                self._running.remove(batch)
                if not (batch.stop.is_set or self._takes_long(batch)):
                    for sentence in batch.sentences:
                        sentence.client.is_slow = False
                # a running mean of how fast the model is; of stopped batches too, or a slower machine stops all
                share = SMOOTHING if self._seconds_per_token else 1.0
                self._seconds_per_token += share * (batch.seconds / batch.tokens - self._seconds_per_token)
                self._changed.notify_all()

    def _put_back(self, batch: Batch) -> None:
        with self._changed:
            batch.sentences[0].client.is_slow |= not batch.is_shared
            for sentence in reversed(batch.sentences):
                sentence.is_alone = batch.is_shared  # then it shows which of them takes long
                if sentence.is_wanted:
                    sentence.client.waiting.appendleft(sentence)

    def _translate(self, batch: Batch) -> None:
        """Translate a batch, and finish the texts of which it has the last sentences."""
        settings, options = batch.sentences[0].of.settings, batch.sentences[0].of.options
        probe = Sentence(Text(PROBE, settings, options, translation=PROBE), 0, None, 1, Client())

        def check(some: list[Sentence]) -> list[Any]:
            texts, translations = ([getattr(one.of, name) for one in some] for name in ("text", "translation"))
            coverage = options.coverage or CoverageOptions()
            return self.translator.cover(texts, translations, coverage=coverage, batch_size=self.max_batch)

        def translate(some: list[Sentence]) -> list[Any]:
            # few batches need the probe
            pieces = self._cut(probe.of) if some[0] is probe else [cast(Piece, one.piece) for one in some]
            return self.translator.translate_pieces(pieces, options)

        with batch.stop:
            found = translate_lines(check if settings.is_check else translate, batch.sentences, probe)
            for sentence, one in zip(batch.sentences, found, strict=True):
                sentence.of.found[sentence.place] = one
                if isinstance(one, Failure):
                    sentence.of.finish(one)
            for text in {id(sentence.of): sentence.of for sentence in batch.sentences}.values():
                if not text.result.done() and None not in text.found:
                    _finish_if_failed(text, self._put_together)

    def _put_together(self, text: Text) -> None:
        """Finish a text of which everything is found."""
        if text.document is None:
            text.finish(text.found[0])
        else:
            text.finish(self.translator.put_together([text.document], text.found, text.options)[0])


def _finish_if_failed(text: Text, step: Callable[[Text], Any]) -> None:
    """Take a step with a text; an error of it is its result, and costs the others nothing."""
    try:
        step(text)
    except BaseException as error:
        if not is_of_line(error):
            raise
        text.finish(Failure(describe(error)))


def _fit(one: Sentence, other: Sentence) -> bool:
    """Whether two sentences may go through the model together."""
    if (one.is_alone or other.is_alone) and one.client is not other.client:
        return False
    shorter, longer = sorted((one.cost, other.cost))
    return one.of.settings == other.of.settings and longer <= ALIKE[0] * shorter + ALIKE[1]


def _sentences(text: Text, client: Client) -> list[Sentence]:
    """Return what is to be done for a text, nothing if it has failed."""
    if text.result.done():
        return []
    if text.document is None:
        longer = max(len(text.text), len(text.translation))
        sentences = [Sentence(text, 0, None, 1 + longer // CHARACTERS_PER_TOKEN, client)]
    else:
        pieces = enumerate(text.document.pieces)
        sentences = [Sentence(text, place, piece, len(piece.ids), client) for place, piece in pieces]
    text.found = [None] * len(sentences)
    return sentences
