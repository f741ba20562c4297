// The marks in the two texts, the list of problems beside them, and notes on single words: what became of each.
"use strict";

const $ = (id) => document.getElementById(id);
const IS_WORD = /[\p{L}\p{N}]/u;
// a word as Python's `str.split` cuts it, which alignments count
const WORD = /[^\t-\r\x1c-\x20\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+/g;
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

/** Return a problem with the level and the message of a reason, whose fields are given. */
function problemOf(reason, spans, fields, { isAdded = false, ...facts } = {}) {
  const { level, message, added } = REASONS[reason];
  return { level, reason, message: (isAdded ? added : message).replace(/\{(\w+)\}/g, (_, name) => fields[name]), spans, ...facts };
}

/** Return a check by rule as a problem; `areChanged`: whether numbers are missing and others were added. */
function problemOfCheck({ kind, missing, added }, source, target, areChanged) {
  if (kind === "sentences") {
    const [unit, comparison] = [missing === "1" ? "sentence" : "sentences", Number(missing) < Number(added) ? "longer" : "shorter"];
    return problemOf(kind, [], { missing: `${missing} ${unit}`, added, comparison });
  }
  const spans = [
    missing && spanOf("source", source, missing, kind === "end"),
    added && spanOf("target", target, kind === "doubled" ? `${added} ${added}` : added, kind === "end"),
    kind === "untranslated" && spanOf("target", target, missing),
  ].filter(Boolean);
  let reason = kind;
  if (kind === "numbers" && !areChanged) reason = "lone_numbers";
  if (kind === "numbers" && missing && added) reason = "swapped_numbers";
  return problemOf(reason, spans, { missing, added }, { isAdded: !missing && Boolean(REASONS[reason].added) });
}

/** Return runs of marked words as `{ words, span }`: neighbours are one run, with words between that are probably left out, too. */
function runsOfMarks(words, text, side) {
  const runs = [];
  let last = null; // the run of the word before
  for (const word of words.filter(({ start, end }) => IS_WORD.test(text.slice(start, end)))) {
    if (!(word.untranslated || word.unsupported)) {
      if ((word.covered ?? 1) >= MIN_COVERED) last = null;
      continue;
    }
    if (last === null) runs.push((last = { words: [], span: { side, start: word.start } }));
    last.words.push(word);
    last.span.end = word.end;
  }
  return runs;
}

/** Return the words of a translation in a row of words that are probably made up. */
function wordsInMadeUpRows(words) {
  const starts = Array.from({ length: Math.max(words.length - ROW_LENGTH + 1, 1) }, (_, start) => start);
  const rows = starts.map((start) => words.slice(start, start + ROW_LENGTH));
  return new Set(rows.filter((row) => row.reduce((product, { supported }) => product * supported, 1) < MIN_SUPPORT ** ROW_LENGTH).flat());
}

/** Return what a coverage finds as a list of `{ level, reason, message, spans }`, most certain first. */
function problemsOf(coverage, source, target) {
  const checks = [...(coverage.checks ?? [])];
  if (!checks.some(({ kind }) => kind === "doubled")) checks.push(...coverage.repetitions.map((added) => ({ kind: "doubled", missing: "", added })));
  const numbers = checks.filter(({ kind }) => kind === "numbers");
  const areChanged = numbers.some(({ missing }) => missing) && numbers.some(({ added }) => added);
  const isPair = ({ kind, missing, added }) => kind === "brackets" && (missing || added).length > 1; // people add these and leave them out
  const faults = checks.filter((check) => !isPair(check)).map((check) => problemOfCheck(check, source, target, areChanged));
  const alarms = coverage.sentences.filter((sentence) => sentence.below_threshold);
  const isVerified = (coverage.method ?? "verified") === "verified";
  const isIn = ({ start, end }, span) => span.start <= start && end <= span.end;
  const isConfirmed = ({ words: [first] }) => alarms.some((alarm) => isIn(first, alarm));
  const isProbable = (run) => isVerified && (coverage.precision >= MIN_PRECISION || isConfirmed(run));
  const share = isVerified && coverage.precision !== undefined ? { share: coverage.precision } : {};
  const runs = runsOfMarks(coverage.words, source, "source").map((run) => problemOf(
    isProbable(run) ? "left_out" : "perhaps_left_out",
    [run.span],
    { words: source.slice(run.span.start, run.span.end), unverified: isVerified ? "" : ", unverified" },
    { words: run.words, ...share },
  ));
  const leftOut = [...runs.filter(isConfirmed), ...runs.filter((run) => !isConfirmed(run))]; // those that an alarm confirms come first
  const targetWords = coverage.target_words ?? [];
  const inRows = wordsInMadeUpRows(targetWords);
  const madeUp = runsOfMarks(targetWords, target, "target").map(({ words, span }) => problemOf(
    words.some((word) => inRows.has(word)) ? "made_up" : "perhaps_made_up", [span], { words: target.slice(span.start, span.end) }, { words }));
  const doubts = [...leftOut, ...madeUp].filter(
    ({ spans: [span] }) => !faults.some((fault) => fault.spans.some((faultSpan) => faultSpan.side === span.side && isIn(span, faultSpan))),
  );
  const silentAlarms = alarms.filter((alarm) => ![...faults, ...leftOut].some(
    ({ spans }) => spans.some((span) => span.side === "source" && isIn(span, alarm))));
  const incomplete = silentAlarms.map(({ start, end }) => problemOf(
    "incomplete", [], { words: source.slice(start, end) }, { shown: { side: "source", start, end } }));
  const problems = [...faults, ...incomplete, ...doubts];
  return LEVELS.flatMap((level) => problems.filter((problem) => problem.level === level));
}

const messageOf = ({ message, share }) => (share === undefined ? message : `${message} (${percent(share)} of such marks are right)`);

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

/** Return what a rule changed in a text before the model read it, as a sentence. */
function sentenceOfEdit({ row, model, back }, written) {
  if (back !== null && model !== "") return `${quoted(written)} was copied, by the rule ${quoted(row)}.`;
  if (model === "") return `The model did not see ${quoted(written)}, by the rule ${quoted(row)}.`;
  return `The model read ${quoted(model)}, by the rule ${quoted(row)}.`;
}

/** Both texts, the pairs of words that belong together, the problems, and the edits of the source. */
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
    [this.pairs, this.edits] = [[], []];
    this.isShown = false;
    for (const text of Object.values(this.sides)) text.clear();
    $("problems").hidden = true;
  }

  hideNotes() {
    for (const text of Object.values(this.sides)) text.hideNote();
  }

  /** Show what a coverage finds, and return how many problems that are; `pairs` are of words that belong together, `edits` of the source. */
  show(coverage, pairs, edits) {
    const problems = coverage ? problemsOf(coverage, this.sides.source.field.value, this.sides.target.field.value) : [];
    this.clear();
    this.isShown = true;
    [this.pairs, this.edits] = [pairs, edits];
    for (const text of Object.values(this.sides)) text.draw(problems);
    $("problem-list").replaceChildren(...problems.map((problem) => this.itemOf(problem)));
    $("problems").hidden = problems.length === 0;
    return problems.length;
  }

  itemOf(problem) {
    const item = element("li", "", { class: problem.level });
    const span = problem.spans[0] ?? problem.shown;
    if (!span) {
      item.textContent = messageOf(problem);
      return item;
    }
    const button = element("button", messageOf(problem), { type: "button" });
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

  /** Return what is known about a word in a few sentences, or an empty text. */
  noteOf(side, segment) {
    const text = this.sides[side].field.value;
    const edits = side === "source" ? this.edits.filter(({ start, end }) => start < segment.end && segment.start < end) : [];
    return [this.originOf(side, segment), ...edits.map((edit) => sentenceOfEdit(edit, text.slice(edit.start, edit.end)))].filter(Boolean).join(" ");
  }

  /** Return what became of a word, or what it comes from. */
  originOf(side, { problem, word }) {
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
