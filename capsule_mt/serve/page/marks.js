// The marks in the two texts, the list of problems beside them, and notes on single words: what became of each.
"use strict";

const $ = (id) => document.getElementById(id);
const IS_WORD = /[\p{L}\p{N}]/u;
// a word as Python's `str.split` cuts it, which alignments count
const WORD = /[^\t-\r\x1c-\x20\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+/g;
const CHECKED = {
  numbers: "number", months: "month", weekdays: "weekday", signs: "sign", placeholders: "placeholder", tags: "tag", urls: "address",
  brackets: "pair of brackets", negation: "negation",
};
const MIN_COVERED = 0.5; // a word below it, such as an article, is shown with the marked words around it
const percent = (share) => `${Math.round(100 * share)} %`;
const quoted = (text) => `“${text}”`;

function element(tag, text, attributes = {}) {
  const node = document.createElement(tag);
  node.textContent = text;
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  return node;
}

// ---- what is wrong with a translation, the most certain first: see capsule_mt/coverage/problems.py
/** Return where a text has these words, not as a part of a longer word or number; `null` if it does not have them. */
function spanOf(side, text, words, isLast = false) {
  const escaped = words.trim().split(/\s+/).map((word) => word.replace(/[.*+?^${}()|[\]\\/]/g, "\\$&"));
  const [wordStart, wordEnd] = [/^[\p{L}\p{N}]/u.test(words) ? "(?<![\\p{L}\\p{N}])" : "", /[\p{L}\p{N}]$/u.test(words) ? "(?![\\p{L}\\p{N}])" : ""];
  const matches = [...text.matchAll(new RegExp(wordStart + escaped.join("[^\\p{L}\\p{N}]+") + wordEnd, "giu"))];
  const match = isLast ? matches.at(-1) : matches[0];
  return match ? { side, start: match.index, end: match.index + match[0].length } : null;
}

/** Return a check by rule as a problem. */
function problemOfCheck({ kind, missing, added }, source, target) {
  if (kind === "sentences") {
    const [unit, comparison] = [missing === "1" ? "sentence" : "sentences", Number(missing) < Number(added) ? "longer" : "shorter"];
    return { level: "fault", message: `The text has ${missing} ${unit}, the translation ${added}, and is much ${comparison}.`, spans: [] };
  }
  const spans = [
    missing && spanOf("source", source, missing, kind === "end"),
    added && spanOf("target", target, kind === "doubled" ? `${added} ${added}` : added, kind === "end"),
    kind === "untranslated" && spanOf("target", target, missing),
  ].filter(Boolean);
  let message = missing ? `The ${CHECKED[kind]} ${missing} is missing in the translation.` : `The ${CHECKED[kind]} ${added} is only in the translation.`;
  if (kind === "end") message = `The text ends with ${quoted(missing)}, the translation with ${quoted(added)}.`;
  if (kind === "untranslated") message = `Not translated: ${missing}`;
  if (kind === "numbers" && missing && added) message = `Two numbers change places: ${quoted(missing)}, ${quoted(added)}.`;
  if (kind === "names") message = `The name ${quoted(missing)} became ${quoted(added)}.`;
  if (kind === "doubled") message = `Said twice in a row: ${added}`;
  return { level: "fault", message, spans };
}

/** Return runs of marked words as problems: neighbours are one problem, with words between that are probably left out, too. */
function problemsOfWords(words, text, side, message) {
  const problems = [];
  let last = null; // the problem of the word before
  for (const word of words.filter(({ start, end }) => IS_WORD.test(text.slice(start, end)))) {
    if (!(word.untranslated || word.unsupported)) {
      if ((word.covered ?? 1) >= MIN_COVERED) last = null;
      continue;
    }
    if (last === null) problems.push((last = { level: "doubt", words: [], spans: [{ side, start: word.start }] }));
    last.words.push(word);
    last.spans[0].end = word.end;
    last.message = `${message}: ${text.slice(last.spans[0].start, word.end)}`;
  }
  return problems;
}

/** Return what a coverage finds as a list of `{ level: "fault" | "doubt", message, spans }`. */
function problemsOf(coverage, source, target) {
  const faults = (coverage.checks ?? []).map((check) => problemOfCheck(check, source, target));
  if (!coverage.checks?.some(({ kind }) => kind === "doubled")) {
    faults.push(...coverage.repetitions.map((added) => problemOfCheck({ kind: "doubled", missing: "", added }, source, target)));
  }
  const alarms = coverage.sentences.filter((sentence) => sentence.below_threshold);
  const unverified = (coverage.method ?? "verified") === "verified" ? "" : ", unverified";
  const isIn = ({ start, end }, span) => span.start <= start && end <= span.end;
  const isConfirmed = ({ words: [first] }) => alarms.some((alarm) => isIn(first, alarm));
  const runs = problemsOfWords(coverage.words, source, "source", `Perhaps left out${unverified}`);
  const leftOut = [...runs.filter(isConfirmed), ...runs.filter((run) => !isConfirmed(run))]; // those that an alarm confirms come first
  const madeUp = problemsOfWords(coverage.target_words ?? [], target, "target", "Perhaps made up");
  const doubts = [...leftOut, ...madeUp].filter(
    ({ spans: [span] }) => !faults.some((fault) => fault.spans.some((faultSpan) => faultSpan.side === span.side && isIn(span, faultSpan))),
  );
  const silentAlarms = alarms.filter((alarm) => ![...faults, ...leftOut].some(
    ({ spans }) => spans.some((span) => span.side === "source" && isIn(span, alarm))));
  const incomplete = silentAlarms.map(({ start, end }) => (
    { level: "doubt", message: `Perhaps incomplete: ${source.slice(start, end)}`, spans: [], shown: { side: "source", start, end } }));
  const unrelated = coverage.sentences.filter((sentence) => sentence.is_unrelated).map(({ start, end }) => (
    { level: "doubt", message: `Perhaps a translation of another text: ${source.slice(start, end)}`, spans: [], shown: { side: "source", start, end } }));
  return [...faults, ...incomplete, ...doubts, ...unrelated];
}

// ---- the two texts
/** A text in a field, with a layer of marks under it. */
class MarkedText {
  constructor(side) {
    this.side = side;
    [this.field, this.layer, this.note] = [$(side), $(`${side}-marks`), $(`${side}-note`)];
    this.view = this.layer.parentElement; // what scrolls
    this.view.addEventListener("scroll", () => this.placeNote());
    this.clear();
  }

  /** Draw the text without marks. The layer has the text, so that it is as high as the field has to be. */
  clear() {
    this.segments = [];
    this.layer.replaceChildren(this.field.value, document.createElement("br"));
    this.hideNote();
  }

  /** Draw the text in segments, which are words, the spans of problems, and what is between. */
  draw(problems) {
    const text = this.field.value;
    const words = [...text.matchAll(WORD)].map((match, index) => ({ index, start: match.index, end: match.index + match[0].length }));
    const spans = problems.flatMap((problem) => problem.spans.filter(({ side }) => side === this.side).map((span) => ({ ...span, problem })));
    const edges = [...new Set([0, text.length, ...[...words, ...spans].flatMap(({ start, end }) => [start, end])])].sort((a, b) => a - b);
    const holding = (items, start) => items.find((item) => item.start <= start && start < item.end);
    let nextWord = 0;
    this.segments = edges.slice(1).map((end, index) => {
      const start = edges[index];
      while (words[nextWord]?.end <= start) nextWord += 1;
      const word = words[nextWord]?.start <= start ? words[nextWord] : undefined;
      const problem = holding(spans, start)?.problem;
      return { start, end, word: word?.index, problem, node: element("span", text.slice(start, end), { class: problem?.level ?? "" }) };
    });
    this.words = words.map(({ start, end }) => text.slice(start, end));
    this.layer.replaceChildren(...this.segments.map(({ node }) => node), document.createElement("br"));
  }

  segmentAtPoint({ clientX, clientY }) {
    const nodes = document.elementsFromPoint(clientX, clientY);
    return this.segments.find(({ node }) => nodes.includes(node));
  }

  segmentAtCaret() {
    return this.segments.find(({ start, end }) => start <= this.field.selectionStart && this.field.selectionStart < end);
  }

  light(isLit) {
    for (const segment of this.segments) segment.node.classList.toggle("lit", isLit(segment));
  }

  showNote(text, { node }) {
    this.note.textContent = text;
    this.noted = node;
    this.note.hidden = false;
    this.placeNote();
  }

  /** Put the note under its word, and hide it once the word has scrolled out of view. */
  placeNote() {
    if (this.note.hidden) return;
    const left = Math.min(this.noted.offsetLeft, this.layer.offsetWidth - this.note.offsetWidth);
    const top = this.noted.offsetTop - this.view.scrollTop;
    this.note.style.left = `${Math.max(0, left)}px`;
    this.note.style.top = `${top + this.noted.offsetHeight + 4}px`;
    this.note.hidden = top < 0 || top > this.view.clientHeight;
  }

  hideNote() {
    this.note.hidden = true;
  }
}

/** Both texts, the pairs of words that belong together, and the problems. */
class MarkedTexts {
  constructor() {
    this.sides = { source: new MarkedText("source"), target: new MarkedText("target") };
    this.clear();
    for (const [side, text] of Object.entries(this.sides)) {
      text.field.addEventListener("pointermove", (event) => this.light(side, text.segmentAtPoint(event)));
      text.field.addEventListener("pointerleave", () => this.light(side, undefined));
      text.field.addEventListener("click", (event) => this.showNote(side, text.segmentAtPoint(event)));
      text.field.addEventListener("keyup", (event) => {
        if (!/^(Arrow|Home|End|Page)/.test(event.key)) return;
        const segment = text.segmentAtCaret();
        this.light(side, segment);
        this.showNote(side, segment?.problem && segment); // a note on each word would be too much to hear
      });
      text.field.addEventListener("blur", () => text.hideNote());
    }
    document.addEventListener("keydown", (event) => event.key === "Escape" && this.hideNotes());
  }

  clear() {
    this.pairs = [];
    this.isShown = false;
    for (const text of Object.values(this.sides)) text.clear();
    $("problems").hidden = true;
  }

  hideNotes() {
    for (const text of Object.values(this.sides)) text.hideNote();
  }

  /** Show what a coverage finds, and return how many problems that are; `pairs` are of words that belong together. */
  show(coverage, pairs) {
    const problems = coverage ? problemsOf(coverage, this.sides.source.field.value, this.sides.target.field.value) : [];
    this.clear();
    this.isShown = true;
    this.pairs = pairs;
    for (const text of Object.values(this.sides)) text.draw(problems);
    $("problem-list").replaceChildren(...problems.map((problem) => this.itemOf(problem)));
    $("problems").hidden = problems.length === 0;
    return problems.length;
  }

  itemOf(problem) {
    const item = element("li", "", { class: problem.level });
    const span = problem.spans[0] ?? problem.shown;
    if (!span) {
      item.textContent = problem.message;
      return item;
    }
    const button = element("button", problem.message, { type: "button" });
    button.addEventListener("click", () => this.pointAt(problem, span));
    item.append(button);
    return item;
  }

  /** Light up a problem in its text, and show its note there. */
  pointAt(problem, span) {
    const text = this.sides[span.side];
    for (const markedText of Object.values(this.sides)) {
      markedText.light(({ start, end }) => [...problem.spans, span].some((lit) => lit.side === markedText.side && lit.start <= start && end <= lit.end));
    }
    const first = text.segments.find(({ start }) => start >= span.start);
    first.node.scrollIntoView({ block: "nearest" });
    this.hideNotes();
    if (first.problem === problem) text.showNote(this.noteOf(span.side, first), first);
  }

  /** Return the indices of the words on the other side that belong to a word. */
  partners(side, word) {
    const [sideIndex, otherIndex] = side === "source" ? [0, 1] : [1, 0];
    return this.pairs.filter((pair) => pair[sideIndex] === word).map((pair) => pair[otherIndex]);
  }

  light(side, segment) {
    const partners = segment?.word === undefined ? [] : this.partners(side, segment.word);
    this.sides[side].light(({ word }) => partners.length > 0 && word === segment.word);
    this.sides[side === "source" ? "target" : "source"].light(({ word }) => partners.includes(word));
  }

  showNote(side, segment) {
    this.hideNotes();
    const note = segment && this.noteOf(side, segment);
    if (note) this.sides[side].showNote(note, segment);
  }

  /** Return what is known about a word in one or two sentences, or an empty text. */
  noteOf(side, { problem, word }) {
    const partners = word === undefined ? [] : this.partners(side, word);
    const names = partners.map((index) => quoted(this.sides[side === "source" ? "target" : "source"].words[index])).join(", ");
    if (!problem) return names && `${quoted(this.sides[side].words[word])} ${side === "source" ? "became" : "comes from"} ${names}.`;
    if (!problem.words) return problem.message;
    const shares = problem.words.map(({ covered, supported }) => covered ?? supported);
    const share = percent(shares.reduce((sum, value) => sum + value, 0) / shares.length);
    const reason = side === "source" ? `Only ${share} of it seems to be in the translation.` : `Only ${share} of it seems to come from the text.`;
    return `${problem.message}. ${reason}`;
  }
}
