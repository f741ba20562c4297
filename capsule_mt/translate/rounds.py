"""The rounds that hypotheses go through after the first search: retry, labels, stand-ins, terms of a glossary.

The last three take drafts and return drafts; none changes what it gets.
"""

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from capsule_mt.checks.certain import count_certain_faults, has_invented_mark
from capsule_mt.engine.search import Hypothesis
from capsule_mt.messages import warn_once
from capsule_mt.text.finishing import as_label
from capsule_mt.text.reading import Piece
from capsule_mt.text.segments import Document
from capsule_mt.text.tokenizer_protocol import Tokenizer
from capsule_mt.translate.aligning import aligned_rows
from capsule_mt.translate.plan import DEFAULT_COVERAGE_WEIGHT, Plan
from capsule_mt.translate.searching import Hypotheses, search

if TYPE_CHECKING:  # late: few calls have a glossary
    from capsule_mt.text.glossary import Term


# For certain faults: on 7,500 strings of apps, 4 beams without the first search's brackets repaired 71 of 76.
RETRY_BEAMS = 4
MAX_RETRIES = 3  # each forbids further tokens with brackets or quotes


class Draft(NamedTuple):
    """A piece of the document at an index, and its hypotheses so far, best first."""

    document_index: int
    piece: Piece
    hypotheses: Hypotheses


Round = Callable[[list[Draft], Plan], list[Draft]]


def rounds_of(documents: Sequence[Document]) -> list[Round]:
    """Return the rounds that these documents need after the first pass, in order."""
    pieces = [piece for document in documents for piece in document.pieces]
    rounds: list[Round] = []
    if any(piece.is_label for piece in pieces):
        rounds.append(with_label_forms)
    if any(piece.keeps for piece in pieces):
        rounds.append(with_stand_ins)
    if any(piece.terms for piece in pieces):
        rounds.append(with_terms)
    return rounds


def translated(pieces: Sequence[Piece], plan: Plan) -> list[Hypotheses]:
    """Return the hypotheses of one pass: a search, and a retry of what has a fault or leaves much out."""
    return with_retries(pieces, search(pieces, plan), plan)


# ---- retry: what has a fault that a search can repair, or is below the threshold, once more with more beams
def with_retries(
    pieces: Sequence[Piece], results: list[Hypotheses], plan: Plan, are_chosen_labels: bool = False
) -> list[Hypotheses]:
    """Search again for pieces with certain faults; with `retry_beams`, also below the threshold; keep the better.

    If the plan `retries_marks`, pieces with a mark are searched again, too. The tokens of brackets and quotes that the
    source lacks are forbidden in the next search, which may show others.

    are_chosen_labels: whether the pieces are labels whose form is chosen. Until then, faults of a label do not count:
        another of its forms may lack them.
    """
    retry_beams = None if plan.coverage is None else plan.coverage.options.retry_beams
    repairs_faults = plan.repairs_faults and plan.options.copy and not plan.search.options.transformers_only
    retries_marks = plan.coverage is not None and plan.coverage.retries_marks and not are_chosen_labels
    repairs = retry_beams is not None or repairs_faults or retries_marks
    forbidden: dict[int, frozenset[int]] = {}  # tokens, by the index of the piece
    for index, (piece, hypotheses) in enumerate(zip(pieces, results, strict=True) if repairs else ()):
        checks_faults = (repairs_faults or retry_beams is not None) and piece.is_label == are_chosen_labels
        has_fault = checks_faults and _needs_retry(piece, hypotheses[0], plan)
        has_mark = retries_marks and _count_marks(hypotheses[0]) > 0
        leaves_much_out = retry_beams is not None and not are_chosen_labels and is_short(hypotheses, plan.threshold)
        if has_fault or has_mark or leaves_much_out:
            forbidden[index] = _with_invented_marks(piece, hypotheses, plan)
    results = list(results)
    # all beams come back: a fault of the best one may be missing in the next
    num_beams = max(retry_beams or RETRY_BEAMS, plan.num_returned)
    for _ in range(MAX_RETRIES):
        further: dict[int, frozenset[int]] = {}
        for tokens in dict.fromkeys(forbidden.values()):
            indices = [index for index in forbidden if forbidden[index] == tokens]
            retried = search([pieces[index] for index in indices], _retry_plan(plan, num_beams, tokens))
            for index, hypotheses in zip(indices, retried, strict=True):
                piece = pieces[index]
                results[index] = _better(piece, results[index], hypotheses, plan)
                more_tokens = tokens | _with_invented_marks(piece, hypotheses, plan)
                if more_tokens > tokens and _count_faults(piece, results[index][0], plan):
                    further[index] = more_tokens
        forbidden = further
    return results


def _retry_plan(plan: Plan, num_beams: int, forbidden: Collection[int]) -> Plan:
    """Return the plan of a search that returns the hypotheses of all its beams, without these tokens."""
    coverage = plan.coverage
    is_weighted = coverage is not None and (coverage.options.retry_beams is not None or coverage.retries_marks)
    weight = plan.weight or (DEFAULT_COVERAGE_WEIGHT if is_weighted else None)
    retry = plan.with_beams(max(num_beams, plan.num_beams), weight)
    suppressed = (*plan.search.options.suppress_tokens, *sorted(forbidden))
    search = retry.search.with_options(num_return_sequences=retry.num_beams, suppress_tokens=suppressed)
    return retry._replace(num_returned=retry.num_beams, search=search)


def _better(piece: Piece, original: Hypotheses, retried: Hypotheses, plan: Plan) -> Hypotheses:
    """Return the hypotheses whose best has fewer faults, else fewer marks or, with `retry_beams`, leaves less out."""
    compares_coverage = plan.coverage is not None and plan.coverage.options.retry_beams is not None
    compares_marks = plan.coverage is not None and plan.coverage.retries_marks and not compares_coverage

    def rank(hypothesis: Hypothesis) -> tuple[int, int, float]:
        num_marks = _count_marks(hypothesis) if compares_marks else 0
        omitted_share = _omitted_share(hypothesis) if compares_coverage else 0.0
        return _count_faults(piece, hypothesis, plan), num_marks, omitted_share

    by_rank = sorted(retried, key=lambda hypothesis: rank(hypothesis)[:2])  # keeps their order
    return min(original, by_rank[: plan.num_returned], key=lambda hypotheses: rank(hypotheses[0]))


def _count_faults(piece: Piece, hypothesis: Hypothesis, plan: Plan) -> int:
    """Return how many certain faults a hypothesis has: lost items, and those of `count_certain_faults`."""
    text = plan.tokenizer.decode(hypothesis.ids)
    return len(piece.lost(text)) + count_certain_faults(piece.text, text, plan.languages)


def _needs_retry(piece: Piece, hypothesis: Hypothesis, plan: Plan) -> bool:
    """Return whether a hypothesis has a certain fault; if it has lost an item, stand-ins are its retry instead."""
    text = plan.tokenizer.decode(hypothesis.ids)
    has_faults = count_certain_faults(piece.text, text, plan.languages) > 0
    return has_faults and not piece.lost(text)


def _with_invented_marks(piece: Piece, hypotheses: Hypotheses, plan: Plan) -> frozenset[int]:
    """Return the tokens of these hypotheses that have a bracket or a quote mark which the source lacks."""
    decode = plan.tokenizer.decode
    tokens = {token for hypothesis in hypotheses for token in hypothesis.ids} - {*piece.prefix}
    return frozenset(token for token in tokens if has_invented_mark(piece.text, decode([token])))


def is_short(hypotheses: Hypotheses, threshold: float | None) -> bool:
    """Return whether the best translation of a piece has a coverage below the threshold."""
    covered = hypotheses[0].covered
    return threshold is not None and covered is not None and covered.score < threshold


def _count_marks(hypothesis: Hypothesis) -> int:
    """Return how many words of the source are marked as left out."""
    return 0 if hypothesis.covered is None else sum(hypothesis.covered.marked)


def _omitted_share(hypothesis: Hypothesis) -> float:
    """Return the omitted share of a translation; infinite if its coverage was not found."""
    return math.inf if hypothesis.covered is None else hypothesis.covered.omitted_share


# ---- labels: words alone on their lines, which models often translate twice in a row, or as a phrase
# Chosen on 600 menu words, Portuguese and English: the vote gets 84 % of them right, the user's form alone 75 %. The
# best rule by log-probabilities, of this model or of the reverse one, gets 84 %, too.
def with_label_forms(drafts: list[Draft], plan: Plan) -> list[Draft]:
    """Translate each label also with a colon, and capitalised ones in lowercase; keep the most frequent translation.

    A single word goes before a phrase, and a phrase before one that repeats itself; a tie goes to the earliest form.
    """
    forms = {
        index: plan.segmenter.label_forms(draft.piece) for index, draft in enumerate(drafts) if draft.piece.is_label
    }
    results = iter(translated([form for pieces in forms.values() for form in pieces], plan))
    drafts = list(drafts)
    for index, pieces in forms.items():
        candidates = [
            drafts[index],
            *(drafts[index]._replace(piece=form, hypotheses=next(results)) for form in pieces),
        ]
        drafts[index] = _most_frequent(candidates, plan.tokenizer)
    labels = [drafts[index] for index in forms]
    pieces, hypotheses = [draft.piece for draft in labels], [draft.hypotheses for draft in labels]
    repaired = with_retries(pieces, hypotheses, plan, are_chosen_labels=True)
    for index, label_hypotheses in zip(forms, repaired, strict=True):
        drafts[index] = drafts[index]._replace(hypotheses=label_hypotheses)
    return drafts


def _most_frequent(candidates: Sequence[Draft], tokenizer: Tokenizer) -> Draft:
    """Return the candidate of one word, without a doubled phrase, that most have; earlier conditions count more."""
    from capsule_mt.checks.repetition import doubled_phrases  # late: few texts have labels

    texts = [as_label(tokenizer.decode(draft.hypotheses[0].ids)).casefold() for draft in candidates]
    counts = Counter(texts)

    def rank(index: int) -> tuple[bool, bool, int]:
        text = texts[index]
        return len(text.split()) == 1, not doubled_phrases(text), counts[text]

    return candidates[max(range(len(candidates)), key=rank)]


# ---- stand-ins: words that models copy, for what a translation has not kept
def with_stand_ins(drafts: list[Draft], plan: Plan) -> list[Draft]:
    """Retry pieces that lost a protected item: with stand-ins, and after a few rounds in parts around the items.

    A piece may become several. A stand-in is never printed: the best hypothesis replaces any other that holds one.
    """
    while True:
        checked = [_without_stand_ins(draft, plan.tokenizer) for draft in drafts]
        replacements = {
            index: plan.segmenter.retries(draft.piece, plan.tokenizer.decode(draft.hypotheses[0].ids))
            for index, draft in enumerate(drafts)
            if draft.piece.keeps
        }
        pieces = [piece for parts in replacements.values() for piece in parts]
        if not pieces:
            return checked
        results = iter(translated(pieces, plan))
        drafts = []
        for index, draft in enumerate(checked):
            parts = replacements.get(index)
            drafts += [draft._replace(piece=part, hypotheses=next(results)) for part in parts] if parts else [draft]


def _without_stand_ins(draft: Draft, tokenizer: Tokenizer) -> Draft:
    if not draft.piece.keeps:
        return draft
    best = draft.hypotheses[0]
    hypotheses = [
        best if draft.piece.lost(tokenizer.decode(hypothesis.ids)) else hypothesis for hypothesis in draft.hypotheses
    ]
    return draft._replace(hypotheses=hypotheses)


# ---- terms: a translation that lacks a term is decoded again with the term in its prefix
def with_terms(drafts: list[Draft], plan: Plan) -> list[Draft]:
    """Translate the pieces that lack terms of the glossary again: up to where a term belongs, the term, then on.

    The prefix is the translation up to the word that attends most to the term, then the term. A piece takes a pass
    for each term that it lacks, and one more if the model extends the term's last word (a suffix, say): the next word
    is then forced, too. The continuation has half the beams of a search with more than two, but at least two and as
    many as are returned, so that batches are larger.
    """
    from capsule_mt.text.glossary import missing_terms, prefixes_with_term

    decode, encode = plan.tokenizer.decode, plan.tokenizer.encode_target
    num_beams = min(plan.num_beams, max(2, plan.num_beams // 2, plan.num_returned))
    continuation = plan.with_beams(num_beams, plan.weight).with_batches_times(plan.num_beams, num_beams)
    drafts = list(drafts)
    forced = {index: decode(draft.piece.prefix) for index, draft in enumerate(drafts) if draft.piece.terms}
    with_next_word: dict[int, str] = {}  # longer prefixes, for terms that the model extends
    pending: Iterable[int] = forced
    for _ in range(2 * max((len(draft.piece.terms) for draft in drafts), default=0)):
        prefixes: dict[int, str] = {}
        missing: dict[int, list[Term]] = {}
        for index in pending:
            piece, text = drafts[index].piece, decode(drafts[index].hypotheses[0].ids)
            longer = with_next_word.pop(index, "")
            if longer and text[len(forced[index]) :][:1].isalnum():
                prefixes[index] = longer
            elif terms := [term for term in missing_terms(piece.terms, text) if _can_write(term, plan.tokenizer)]:
                missing[index] = terms
        aligned = aligned_rows([(drafts[index].piece.ids, drafts[index].hypotheses[0]) for index in missing], plan)
        for (index, terms), rows in zip(missing.items(), aligned, strict=True):
            draft = drafts[index]
            tokens = [(draft.piece.tokens_of(term.span), term) for term in terms]
            ids, start = draft.hypotheses[0].ids, len(forced[index])
            prefixes[index], with_next_word[index] = prefixes_with_term(tokens, ids, decode, rows, start)
        pieces = {index: drafts[index].piece.with_prefix(encode(text)[:-1]) for index, text in prefixes.items()}
        pieces = {index: piece for index, piece in pieces.items() if _has_room(piece, drafts[index], plan)}
        for index, hypotheses in zip(pieces, translated([*pieces.values()], continuation), strict=True):
            drafts[index] = drafts[index]._replace(hypotheses=hypotheses)
        forced |= prefixes
        pending = pieces
        if not pending:
            break
    return drafts


def _has_room(prefixed: Piece, draft: Draft, plan: Plan) -> bool:
    """Return whether a translation may be as long as its prefix; if not, warn of the terms that the draft lacks."""
    from capsule_mt.engine.decoder import with_first_token  # late: few calls have a glossary
    from capsule_mt.text.glossary import missing_terms

    options = plan.search.for_batch([len(prefixed.ids)], [prefixed.prefix])
    (limit,) = options.limits
    if all(len(prefix) <= limit for prefix in with_first_token(options).prefixes):
        return True
    for term in missing_terms(prefixed.terms, plan.tokenizer.decode(draft.hypotheses[0].ids)):
        warn_once(
            f"{limit} tokens have no room for {term.target!r} of the glossary: it is left out; `max_new_tokens` sets "
            "a higher limit"
        )
    return False


def _can_write(term: "Term", tokenizer: Tokenizer) -> bool:
    """Return whether the vocabulary can write a term's target; warn if it cannot."""
    if tokenizer.unknown_id not in tokenizer.encode_target(term.target):
        return True
    warn_once(f"the vocabulary cannot write {term.target!r} of the glossary: it is left out")
    return False
