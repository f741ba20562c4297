"""Dynamic batching: queued sentences are translated together, with a fair share for every client.

A client is an API key, an address or a network of IPv6. A sentence costs its tokens for each beam. Of the clients
without a running batch, the least-served starts the next one; waiting earns no credit. Two threads translate. The
second one starts when a batch of the first takes long, so that short sentences seldom wait for long ones. A client is
"slow" from a batch that is stopped, since it ran much longer than usual while others waited, until one that does not
take long. Slow clients have one batch at a time, all together: beside another batch, or when no other client waits.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from math import ceil
from typing import Any, NamedTuple, cast

from capsule_mt.catalog.pairs import LanguagePair
from capsule_mt.coverage.names import Marks
from capsule_mt.coverage.options import CoverageOptions
from capsule_mt.engine.stopping import Stop, StoppedError
from capsule_mt.files.line_failures import PROBE, Failure, describe, may_be_line_error, translate_lines
from capsule_mt.messages import out_of
from capsule_mt.text.reading import Piece
from capsule_mt.text.segments import Document
from capsule_mt.translate.options import TranslationOptions
from capsule_mt.translate.pivot import PivotTranslator, single_model
from capsule_mt.translate.plan import DEFAULT_COVERAGE_WEIGHT
from capsule_mt.translate.text_translator import TextTranslator

MOST_REPEATED = 24  # tokens of a repetition after which a translation is stopped
SMOOTHING = 0.1  # weight of a new value in a running mean
PATIENCE = 0.03  # seconds that a batch may run before the other thread starts one
MAX_TOKENS = 1024  # of a batch: bounds its time even if its sentences are long
MAX_SHARED_SENTENCES = 8  # of a batch with several clients; if there are more clients, one sentence of each
# a sentence of n tokens may share a batch with one of up to LENGTH_RATIO n + EXTRA_LENGTH tokens
LENGTH_RATIO, EXTRA_LENGTH = 2, 16
# A batch takes long if it runs for more than SLOW_SECONDS and more than SLOW times the usual time of its sentences. At
# most SLOW_TOKENS tokens of a sentence count, so that a long one may be slow, too.
SLOW, SLOW_TOKENS, SLOW_SECONDS = 4, 16, 0.1
MAX_CLIENTS = 1024  # whose costs are remembered
CHARACTERS_PER_TOKEN = 3  # estimates the cost of pairs to check, which are not tokenized here
SHARE_OF_QUEUE = 4  # a client may fill a quarter of the queue


class QueueFullError(Exception):
    """The queue has no room for these texts of a client; `retry_after` estimates when it is empty, in seconds."""

    def __init__(self, retry_after: int) -> None:
        super().__init__(f"the server is busy; try again in {retry_after} s")
        self.retry_after = retry_after


class StoppingError(Exception):
    """The server is stopping: it accepts no more texts, or had no time for these."""

    def __init__(self) -> None:
        super().__init__("the server is stopping")


class RequestSettings(NamedTuple):
    """The options of a request; only texts with equal settings share a batch."""

    coverage: bool = False
    alignment: bool = False
    search: tuple[tuple[str, Any], ...] = ()  # names and values of search options
    alternatives: int = 0
    keep: tuple[str, ...] = ()
    is_check: bool = False
    marks: Marks | None = None
    languages: LanguagePair | None = None

    @property
    def language_options(self) -> dict[str, Any]:
        """The languages as arguments of a translator."""
        return {} if self.languages is None else dict(zip(("src_lang", "tgt_lang"), self.languages, strict=True))

    @property
    def num_beams(self) -> int:
        return max(dict(self.search).get("num_beams", 1), 1 + self.alternatives)


DEFAULT_SETTINGS = RequestSettings()


@dataclass(eq=False)
class QueuedText:
    """A text of a request; one to check has a `translation`, and no `document`.

    outputs: the result of each sentence, or of the pair to check; `None` until it is known.
    """

    source: str
    settings: RequestSettings
    plan: Any  # of the translator
    document: Document | None = None
    translation: str = ""
    outputs: list[Any] = field(default_factory=list)
    result: "Future[Any]" = field(default_factory=Future)

    def finish(self, result: Any) -> None:
        """Hand the result or exception to the request, unless it has one already or its client has gone."""
        with suppress(InvalidStateError):
            if isinstance(result, BaseException):
                self.result.set_exception(result)
            else:
                self.result.set_result(result)


@dataclass(eq=False)
class Sentence:
    """A unit of the queue: the `piece` of a text at an index, or the whole of a pair to check, without a piece."""

    text: QueuedText
    index: int
    piece: Piece | None
    cost: int
    client: "Client"
    is_unshared: bool = False  # its batch may not have sentences of other clients
    arrived: float = field(default_factory=time.monotonic)

    @property
    def is_awaited(self) -> bool:
        return not self.text.result.done()


@dataclass(eq=False)
class Client:
    """A client: the tokens served to it, for each beam, its waiting sentences, and whether it is slow."""

    served: float = 0.0
    is_slow: bool = False
    waiting: deque[Sentence] = field(default_factory=deque)

    @property
    def queued(self) -> int:
        return sum(sentence.cost for sentence in self.waiting)


@dataclass(eq=False)
class Order:
    """The texts of a request while they are being translated."""

    texts: list[QueuedText]
    sentences: list[Sentence]

    @property
    def results(self) -> "list[Future[Any]]":
        return [text.result for text in self.texts]

    def cancel(self) -> None:
        """Stop translating the texts of this order."""
        for text in self.texts:
            text.result.cancel()

    def progress(self) -> str:
        """Return a message with the number of finished sentences and tokens."""
        finished = [sentence for sentence in self.sentences if sentence.text.outputs[sentence.index] is not None]
        tokens, all_tokens = (sum(sentence.cost for sentence in group) for group in (finished, self.sentences))
        sentences = out_of(len(finished), len(self.sentences), "sentences")
        return f"{sentences}, {out_of(tokens, all_tokens, 'tokens')}"


@dataclass(eq=False)
class Batch:
    sentences: list[Sentence]
    is_slow: bool  # its sentences are those of slow clients
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
        """Tokens served so far to this batch's most-served client."""
        return max(sentence.client.served for sentence in self.sentences)

    @property
    def is_shared(self) -> bool:
        return any(sentence.client is not self.sentences[0].client for sentence in self.sentences)


class Batcher:
    """Queues the sentences of requests and translates them in batches.

    A batch may start as soon as `max_batch` sentences wait, or one of them has waited for `wait_seconds`. The
    sentences of a client keep their order. A text that cannot be translated becomes a `Failure`, without harm to the
    others. Waiting sentences whose client has gone are dropped, and a batch is stopped if no client waits for it.

    Args:
        translator: is called by several threads.
        max_batch: the most sentences of a batch.
        max_queue: the number of tokens that may wait; a client whose sentences wait may fill a quarter.
    """

    def __init__(
        self,
        translator: TextTranslator,
        *,
        max_batch: int = 32,
        wait_seconds: float = 0.005,
        max_queue: int = 65536,
    ) -> None:
        self.translator = translator
        self.max_batch, self.max_queue = max_batch, max_queue
        self.wait_seconds = wait_seconds
        self._clients: dict[str, Client] = {}
        self._clock = 0.0  # tokens served to the client that started the last batch: new clients start here
        self._running: list[Batch] = []
        self._changed = threading.Condition()
        self._tokenizing: AbstractContextManager[Any] = (
            nullcontext() if translator.tokenizes_in_threads else threading.Lock()
        )
        self._stopping = False
        self._seconds_per_token = 0.0
        self._workers: list[threading.Thread] = []

    def _start(self) -> None:
        """Start the threads, with the lock held; only at the first request, since some pairs never get one."""
        workers = [threading.Thread(target=self._work, name="batcher", daemon=True) for _ in range(2)]
        for thread in (*workers, threading.Thread(target=self._watch, name="watcher", daemon=True)):
            thread.start()
        self._workers = workers  # only now: a thread that has not started counts as dead

    # ---- called by requests
    def submit(self, texts: Sequence[str], settings: RequestSettings = DEFAULT_SETTINGS, *, client: str = "") -> Order:
        """Queue all of the texts, or none of them if there is no room.

        The result of each text is a list of `Translation`s, the best first, or a `Failure`.
        """
        plan = self._plan(settings)
        queued_texts = [QueuedText(text, settings, plan) for text in texts]
        for text in queued_texts:
            _finish_if_failed(text, self._cut)
        return self._queue(queued_texts, client)

    def _cut(self, text: QueuedText) -> list[Piece]:
        """Cut a text into sentences."""
        with self._tokenizing:
            (text.document,) = self.translator.documents([text.source], text.plan)
        return text.document.pieces

    def submit_checks(
        self,
        texts: Sequence[str],
        translations: Sequence[str],
        *,
        alignment: bool = False,
        marks: Marks | None = None,
        languages: LanguagePair | None = None,
        client: str = "",
    ) -> Order:
        """Queue translations to check for omissions; the result of each is a `Translation` or a `Failure`."""
        settings = RequestSettings(coverage=True, alignment=alignment, is_check=True, marks=marks, languages=languages)
        pairs = zip(texts, translations, strict=True)
        plan = self._plan(settings)
        queued_texts = [QueuedText(text, settings, plan, translation=translation) for text, translation in pairs]
        return self._queue(queued_texts, client)

    def _plan(self, settings: RequestSettings) -> Any:
        """Resolve the options of a request, once for all of its texts; `None` for a check: `score` resolves them."""
        if settings.is_check:
            return None
        beams, search = settings.num_beams, dict(settings.search) | {"most_repeated": MOST_REPEATED}
        if "num_beams" in search or beams > 1:
            search |= {"num_beams": beams, "num_return_sequences": 1 + settings.alternatives}
        return self.translator.plan(
            TranslationOptions(
                batch_size=self.max_batch,
                coverage=self._coverage(settings) if settings.coverage else None,
                scores=settings.alternatives > 0,
                alignment=settings.alignment and not isinstance(self.translator, PivotTranslator),
                keep=settings.keep,
                generate_kwargs=search,
                **settings.language_options,
            )
        )

    def _coverage(self, settings: RequestSettings) -> CoverageOptions:
        weight = DEFAULT_COVERAGE_WEIGHT if settings.num_beams > 1 else None
        # only a reverse model with a calibrated head can find words that were made up
        return CoverageOptions(weight=weight, marks=settings.marks, support=self.translator.gives_support)

    def _queue(self, texts: list[QueuedText], name: str) -> Order:
        order = Order(texts, [])
        with self._changed:
            if self._stopping:
                raise StoppingError
            if not self._workers:
                self._start()
            client = self._clients.get(name) or Client()
            order.sentences = [sentence for text in texts for sentence in _sentences(text, client)]
            cost = sum(sentence.cost for sentence in order.sentences)
            client_queued = client.queued
            queued = sum(queued_client.queued for queued_client in self._clients.values())
            # a client without queued sentences may send a request of any length that the queue has room for
            is_over_share = client_queued and client_queued + cost > self.max_queue // SHARE_OF_QUEUE
            if queued + cost > self.max_queue or is_over_share:
                raise QueueFullError(max(1, ceil(queued * self._seconds_per_token)))
            if not client_queued:
                client.served = max(client.served, self._clock)
            self._clients[name] = client
            client.waiting.extend(order.sentences)
            if len(self._clients) > MAX_CLIENTS:
                self._forget_idle_clients()
            self._changed.notify_all()
        for text in texts:
            if not text.outputs and not text.result.done():  # a blank text has no sentences
                _finish_if_failed(text, self._put_together)
        return order

    def num_waiting(self, languages: LanguagePair | None) -> int:
        """Return the number of waiting sentences of a language pair, or of requests that name none."""
        waiting = (sentence for client in list(self._clients.values()) for sentence in list(client.waiting))
        return sum(sentence.text.settings.languages == languages for sentence in waiting)

    @property
    def is_alive(self) -> bool:
        return all(worker.is_alive() for worker in self._workers) and not self._stopping

    def close(self, seconds: float | None = None) -> bool:
        """Translate the queue, then end the threads; return whether they ended within these seconds."""
        deadline = None if seconds is None else time.monotonic() + seconds
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        for worker in self._workers:
            worker.join(None if deadline is None else max(0.0, deadline - time.monotonic()))
        return not any(worker.is_alive() for worker in self._workers)

    def abandon(self) -> None:
        """Accept no more texts, stop the running batches, and give a `StoppingError` to every request."""
        with self._changed:
            self._stopping = True
            waiting = [sentence for client in self._clients.values() for sentence in client.waiting]
            running = [sentence for batch in self._running for sentence in batch.sentences]
            for sentence in (*waiting, *running):
                sentence.text.finish(StoppingError())
            self._clients.clear()
            for batch in self._running:
                batch.stop.set()
            self._changed.notify_all()

    # ---- the choice of a batch, with the lock held
    def _idle_clients(self) -> list[Client]:
        """Return the clients without a running batch: each client has one at a time."""
        running = {id(sentence.client) for batch in self._running for sentence in batch.sentences}
        return [client for client in self._clients.values() if id(client) not in running]

    def _forget_idle_clients(self) -> None:
        idle_ids = {id(client) for client in self._idle_clients() if not client.waiting}
        self._clients = {name: client for name, client in self._clients.items() if id(client) not in idle_ids}

    def _next_batch(self) -> Batch | None:
        """Wait for sentences and return a batch, or `None` when the server stops and the queue is empty."""
        with self._changed:
            while True:
                for client in self._clients.values():
                    while client.waiting and not client.waiting[0].is_awaited:
                        client.waiting.popleft()
                waiting = [client.waiting for client in self._clients.values() if client.waiting]
                if self._stopping and not waiting:
                    return None
                wait = self._seconds_to_wait(waiting)
                if wait is not None and wait <= 0 and (batch := self._choose_batch()):
                    self._running.append(batch)
                    self._changed.notify_all()
                    return batch
                self._changed.wait(wait if wait is None or wait > 0 else PATIENCE)

    def _seconds_to_wait(self, waiting: list[deque[Sentence]]) -> float | None:
        """Return the seconds until a batch may start, or `None` if no sentence waits."""
        if not waiting:
            return None
        if self._stopping or sum(map(len, waiting)) >= self.max_batch:
            return 0.0
        return min(queue[0].arrived for queue in waiting) + self.wait_seconds - time.monotonic()

    def _choose_batch(self) -> Batch | None:
        """Return the next batch, or `None` if none may start beside the running ones."""
        has_slow = any(batch.is_slow for batch in self._running)
        run_times = [batch.seconds for batch in self._running if not batch.is_slow]
        # beside a batch of other clients, slow clients are first; else they are last
        for is_slow in (True, False) if run_times else (False, True):
            # one batch of slow clients at a time; a second one of others only if the first takes long
            is_blocked = has_slow if is_slow else bool(run_times) and min(run_times) < PATIENCE
            if is_blocked:
                continue
            clients = [client for client in self._idle_clients() if client.waiting and client.is_slow == is_slow]
            if clients and (sentences := self._take(sorted(clients, key=lambda client: client.served))):
                return Batch(sentences, is_slow)
        return None

    def _take(self, clients: list[Client]) -> list[Sentence]:
        """Take sentences from the clients in turns, as long as they fit the first sentence and the batch has room."""
        first, max_sentences, tokens = clients[0].waiting[0], self.max_batch, 0
        self._clock = max(self._clock, clients[0].served)
        sentences: list[Sentence] = []
        while clients:
            for client in list(clients):
                sentence = client.waiting[0]
                is_full = len(sentences) >= max_sentences or (sentences and tokens + sentence.cost > MAX_TOKENS)
                if is_full or not _fits(sentence, first):
                    clients.remove(client)
                    continue
                client.waiting.popleft()
                if sentence.is_awaited:
                    tokens += sentence.cost
                    client.served += sentence.cost * sentence.text.settings.num_beams
                    sentences.append(sentence)
                if not client.waiting:
                    clients.remove(client)
            sharers = len({id(sentence.client) for sentence in sentences})
            if sharers > 1:
                max_sentences = min(self.max_batch, max(MAX_SHARED_SENTENCES, sharers))
        return sentences

    # ---- the threads
    def _watch(self) -> None:
        """Stop batches that no request waits for, and batches that block others.

        If both threads take long while other clients wait, the batch of the most-served client is stopped.
        """
        with self._changed:
            while not (self._stopping and not self._running):
                for batch in self._running:
                    if not any(sentence.is_awaited for sentence in batch.sentences):
                        batch.stop.set()
                all_take_long = all(batch.is_slow or self._takes_long(batch) for batch in self._running)
                candidates = [batch for batch in self._running if not batch.is_slow]
                others_wait = any(client.waiting and not client.is_slow for client in self._idle_clients())
                if len(self._running) == len(self._workers) and all_take_long and candidates and others_wait:
                    max(candidates, key=lambda batch: batch.served).stop.set()
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
            except BaseException as error:  # not the fault of a text: every request of the batch gets the error
                for sentence in batch.sentences:
                    sentence.text.finish(error)
            with self._changed:
                self._running.remove(batch)
                if not (batch.stop.is_set or self._takes_long(batch)):
                    for sentence in batch.sentences:
                        sentence.client.is_slow = False
                # stopped batches count, too: if they did not, a machine that becomes slower would stop every batch
                share = SMOOTHING if self._seconds_per_token else 1.0
                self._seconds_per_token += share * (batch.seconds / batch.tokens - self._seconds_per_token)
                self._changed.notify_all()

    def _put_back(self, batch: Batch) -> None:
        """Queue the sentences of a stopped batch again; if one client has them all, it is slow."""
        with self._changed:
            batch.sentences[0].client.is_slow |= not batch.is_shared
            for sentence in reversed(batch.sentences):
                sentence.is_unshared = batch.is_shared  # the next batches then show which of the clients is slow
                if sentence.is_awaited:
                    sentence.client.waiting.appendleft(sentence)

    def _translate(self, batch: Batch) -> None:
        """Translate a batch, and finish the texts whose last sentences it has."""
        settings, plan = batch.sentences[0].text.settings, batch.sentences[0].text.plan
        probe = Sentence(QueuedText(PROBE, settings, plan, translation=PROBE), 0, None, 1, Client())

        def check(sentences: list[Sentence]) -> list[Any]:
            texts = [sentence.text.source for sentence in sentences]
            translations = [sentence.text.translation for sentence in sentences]
            coverage = self._coverage(settings)
            model = single_model(self.translator, "a given translation")
            return model.score(
                texts,
                translations,
                coverage=coverage,
                alignment=settings.alignment,
                batch_size=self.max_batch,
                **settings.language_options,
            )

        def translate(sentences: list[Sentence]) -> list[Any]:
            if sentences[0] is probe:  # cut only here, as few batches need the probe
                pieces = self._cut(probe.text)
            else:
                pieces = [cast(Piece, sentence.piece) for sentence in sentences]
            return self.translator.translate_pieces(pieces, plan)

        with batch.stop:
            outputs = translate_lines(check if settings.is_check else translate, batch.sentences, probe)
            for sentence, output in zip(batch.sentences, outputs, strict=True):
                sentence.text.outputs[sentence.index] = output
                if isinstance(output, Failure):
                    sentence.text.finish(output)
            for text in {id(sentence.text): sentence.text for sentence in batch.sentences}.values():
                if not text.result.done() and None not in text.outputs:
                    _finish_if_failed(text, self._put_together)

    def _put_together(self, text: QueuedText) -> None:
        """Finish a text whose outputs are all known."""
        if text.document is None:
            text.finish(text.outputs[0])
        else:
            text.finish(self.translator.put_together([text.document], text.outputs, text.plan)[0])


def _finish_if_failed(text: QueuedText, step: Callable[[QueuedText], Any]) -> None:
    """Take a step with a text; if the text makes it fail, the `Failure` is its result."""
    try:
        step(text)
    except BaseException as error:
        if not may_be_line_error(error):
            raise
        text.finish(Failure(describe(error)))


def _fits(sentence: Sentence, first: Sentence) -> bool:
    """Return whether a sentence may join the batch of the first one."""
    if (sentence.is_unshared or first.is_unshared) and sentence.client is not first.client:
        return False
    shorter, longer = sorted((sentence.cost, first.cost))
    return sentence.text.settings == first.text.settings and longer <= LENGTH_RATIO * shorter + EXTRA_LENGTH


def _sentences(text: QueuedText, client: Client) -> list[Sentence]:
    """Return the sentences of a text to queue; none if it has failed."""
    if text.result.done():
        return []
    if text.document is None:
        characters = max(len(text.source), len(text.translation))
        sentences = [Sentence(text, 0, None, 1 + characters // CHARACTERS_PER_TOKEN, client)]
    else:
        pieces = enumerate(text.document.pieces)
        sentences = [Sentence(text, index, piece, len(piece.ids), client) for index, piece in pieces]
    text.outputs = [None] * len(sentences)
    return sentences
