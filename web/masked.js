// What the model reads of a text: without tags, emoji and lone signs, and with stand-ins for some items. It follows
// text/keeping.py; `restored` puts everything back.

import { AROUND_ITEMS, ARROWS, ARROW_STAND_IN, BLOCK_BREAK, MAX_NUMBER, MAX_ROUNDS, PATTERNS, STAND_INS } from "./interface.js";
import { itemsOf, TAGS } from "./keeping.js";
import { NormalForm } from "./normal.js";
import { lastUpTo } from "./words.js";

const BLOCK_TAG = new RegExp(`^(?:${PATTERNS.BLOCK_TAG})`, "iu");
const TAG_NAME = new RegExp(`^${PATTERNS.TAG_NAME}`, "u");
const [BEFORE_SIGN, LEFT_SIDE] = [PATTERNS.BEFORE_SIGN, PATTERNS.LEFT_SIDE].map((pattern) => new RegExp(pattern, "u"));
const [AFTER_SIGN, RIGHT_SIDE] = [PATTERNS.AFTER_SIGN, PATTERNS.RIGHT_SIDE].map((pattern) => new RegExp(`^${pattern}`, "u"));
const TAG_KINDS = ["tags", "breaks", "emoji", "emphasis", "signs"]; // that the model does not read
export const UNKNOWN_KINDS = ["unknown", "amounts", "signs", "arrows"]; // of what the vocabulary lacks
const hasLetters = (text) => /\p{L}/u.test(text);
const countOf = (part, text) => text.split(part).length - 1;
const NUMBER_PLACEHOLDER = new RegExp(`^(?:${PATTERNS.NUMBER_PLACEHOLDER})$`, "u");
const isNumberPlaceholder = ({ text, kind }) => kind === "placeholders" && NUMBER_PLACEHOLDER.test(text);
const isTag = ({ kind }) => TAG_KINDS.includes(kind);
/** Whether a span shares a character with any of sorted spans, none of which overlaps another. */
export function overlaps(span, spans) {
  let [low, high] = [0, spans.length]; // the first span that ends after the other one's start
  while (low < high) {
    const middle = (low + high) >> 1;
    if (spans[middle].end <= span.start) low = middle + 1;
    else high = middle;
  }
  return spans[low]?.start < span.end;
}

/** Return the index of each start tag's end tag among parts, and the reverse; empty if elements overlap. */
export function partnersOf(parts) {
  const { partners, overlap } = partnersBeforeOverlap(parts);
  return overlap === parts.length ? partners : new Map();
}

/** Return the partners of tags up to the first end tag at which elements overlap, and its index, or the end. */
function partnersBeforeOverlap(parts) {
  const [openTags, openByName, unclosed, partners] = [[], new Map(), new Set(), new Map()];
  for (const [index, part] of parts.entries()) {
    const tag = isTag(part) && TAG_NAME.exec(part.text);
    const isMark = part.kind === "emphasis";
    if (!isMark && (!tag || part.text.endsWith("/>"))) continue;
    const name = isMark ? part.text : tag[2].toLowerCase();
    const openings = openByName.get(name) ?? [];
    openByName.set(name, openings);
    if (isMark ? !openings.length : !tag[1]) {
      openings.push(index);
      openTags.push({ index, name });
    } else if (openings.length) {
      const opening = openings.pop();
      partners.set(opening, index).set(index, opening);
      for (let inner; !isMark && (inner = openTags.pop()).index !== opening;) {
        const others = openByName.get(inner.name);
        if (others.at(-1) !== inner.index) continue; // a closed mark of emphasis
        others.pop();
        unclosed.add(inner.name);
      }
    } else if (unclosed.has(name)) return { partners, overlap: index };
  }
  return { partners, overlap: parts.length };
}

/** Return parts without tags at the edges whose partners are surely outside; call it again with the result: see keeping.py. */
function withoutEdgeTags(parts) {
  const { partners, overlap } = partnersBeforeOverlap(parts);
  const isContent = (part) => !isTag(part);
  const [contentStart, contentEnd] = [parts.findIndex(isContent), parts.findLastIndex(isContent)];
  let [first, end] = [0, parts.length];
  while (contentEnd < end - 1 && (overlap < end || (partners.get(end - 1) ?? end) >= contentEnd)) end--;
  if (end < parts.length) return parts.slice(0, end);
  const isMark = ({ kind }) => kind === "emphasis";
  const isClosed = (start, stop) => stop < contentStart && parts.slice(start, stop).every((part, offset) => (
    !isMark(part) && (!offset || (partners.get(start + offset) > start && partners.get(start + offset) < stop))));
  while (first < contentStart && (!partners.has(first) || (overlap === end && isClosed(first, partners.get(first))))) {
    first = (partners.get(first) ?? first) + 1; // a single tag, or an element without content
  }
  const partner = partners.get(0);
  const isNested = overlap === end;
  if (first || !contentStart || (isNested && contentStart < partner && partner < end - 1)) return parts.slice(first);
  if (isNested && parts.every((part, index) => !isTag(part) || partners.has(index))) { // elements around everything
    while (first < contentStart && partners.get(first) === end - 1 && end - 1 > contentEnd) [first, end] = [first + 1, end - 1];
  }
  return parts.slice(Math.max(first, 1), end);
}

/** Return a given translation as the model reads it: without tags. */
export function withoutTags(translation) {
  const text = translation.replace(TAGS, (tag) => (BLOCK_TAG.test(tag) ? " " : ""));
  return text === translation ? text : text.trim();
}

/**
 * Return a text as the model reads it, without these items or with stand-ins for them.
 *
 * `vocabulary`: brings the text into its normal form; null for the text as it is.
 */
export function masked(text, vocabulary, items) {
  const form = vocabulary ? vocabulary.normalForm(text, items.map(({ start, end }) => [start, end])) : new NormalForm(text);
  const parts = [];
  let lastEnd = 0;
  for (const item of items) {
    const start = form.offset(item.start);
    const end = start + item.end - item.start;
    parts.push({ text: form.text.slice(lastEnd, start), start: lastEnd, end: start }, { ...item, start, end });
    lastEnd = end;
  }
  parts.push({ text: form.text.slice(lastEnd), start: lastEnd, end: form.text.length });
  return new Masked(parts.filter((part) => part.text || parts.length === 1), form, { keeps: items.length > 0 });
}

/**
 * A text, or a part of it, as the model reads it.
 *
 * `parts`: each with its span of the normal form, and the kind of an item; `keeps`: whether the text has items;
 * `standIns`: by the index of the part; `tried`: stand-ins that earlier translations have lost, a list for each.
 */
export class Masked {
  #usedTags = new Set(); // that `part` has already returned

  constructor(parts, form, { keeps = false, standIns = new Map(), tried = [] } = {}) {
    Object.assign(this, { parts, form, keeps, standIns, tried, text: "", starts: [], tags: [], items: [] });
    parts.forEach((part, index) => {
      this.starts.push(this.text.length);
      if (part.kind) (isTag(part) ? this.tags : this.items).push(index);
      this.text += isTag(part) ? (BLOCK_TAG.test(part.text) ? BLOCK_BREAK : "") : this.#textOf(index);
    });
    this.starts.push(this.text.length);
  }

  /** Return what the model reads of a part that is not a tag. */
  #textOf(index) {
    return this.standIns.get(index) ?? this.parts[index].text;
  }

  #changed(options) {
    const { keeps, standIns, tried } = this;
    return new Masked(this.parts, this.form, { keeps, standIns, tried, ...options });
  }

  /** `text` without the marks of sentences in items. */
  get shadow() {
    const { text, starts } = this;
    let [shadow, end] = ["", 0];
    for (const index of this.items) {
      shadow += text.slice(end, starts[index]) + "\ue000".repeat(starts[index + 1] - starts[index]);
      end = starts[index + 1];
    }
    return shadow + text.slice(end);
  }

  /** Its span of the user's text. */
  get span() {
    return this.form.sourceSpan([this.parts[0].start, this.parts.at(-1).end]);
  }

  #partAt(offset) {
    return lastUpTo(this.starts, offset);
  }

  /** Return the span of the user's text behind a span of `text`; an item is never cut. */
  userSpan([start, end]) {
    const [first, last] = [this.#partAt(start), this.#partAt(end - 1)];
    const [left, right] = [this.parts[first], this.parts[last]];
    return this.form.sourceSpan([
      left.start + (left.kind ? 0 : start - this.starts[first]), right.end - (right.kind ? 0 : this.starts[last + 1] - end),
    ]);
  }

  /** Whether a span of `text` begins in an item, which the translation copies. */
  isCopied([start]) {
    return this.parts[this.#partAt(start)].kind !== undefined;
  }

  /** The user's text, in sentence case. */
  get userText() {
    return this.form.source.slice(...this.span);
  }

  /** Return this text with a colon after its last character, inside the tags around it. */
  withColon() {
    const last = this.parts.findLastIndex((part) => !isTag(part)) + 1;
    const { end } = this.parts[last - 1];
    return this.#withParts([...this.parts.slice(0, last), { text: ":", start: end, end }, ...this.parts.slice(last)]);
  }

  /** Return this text in lowercase; items, and parts whose length would change, stay as they are. */
  lowercased() {
    return this.#withParts(this.parts.map((part) => {
      const text = part.text.toLowerCase();
      return part.kind || text.length !== part.text.length ? part : { ...part, text };
    }));
  }

  #withParts(parts) {
    return new Masked(parts, this.form, { keeps: this.keeps });
  }

  /** Whether a span of `text` stands for nothing in the user's text. */
  isAdded([start]) {
    const part = this.parts[this.#partAt(start)];
    return part.start === part.end;
  }

  /** `text` with a space for each item. */
  get withoutItems() {
    return this.parts.map((part, index) => (part.kind && !isTag(part) ? " " : this.text.slice(this.starts[index], this.starts[index + 1])))
      .join("");
  }

  /** Return this text with another ending instead of a span of `text` in the last part; of no characters after an item. */
  withEnding([first, end], ending) {
    const last = this.parts.at(-1);
    const [cut, cutEnd] = [first, end].map((offset) => last.end - this.text.length + offset);
    const before = first < end ? { ...last, text: last.text.slice(0, first - this.starts.at(-2)), end: cut } : last;
    const added = [{ text: ending, start: cut, end: cutEnd }, { text: this.text.slice(end), start: cutEnd, end: last.end }];
    return this.#withParts([...this.parts.slice(0, -1), before, ...added].filter(({ text }) => text));
  }

  get hasWords() {
    return !this.items.length || this.parts.some(({ text, kind }) => !kind && hasLetters(text));
  }

  /** Return a span of `text` with its tags; one at an edge only if its partner is inside, too, and not returned before. */
  part([spanStart, spanEnd]) {
    let selected = [];
    const first = Math.max(lastUpTo(this.starts, spanStart - 0.5), 0);
    this.parts.slice(first, lastUpTo(this.starts, spanEnd) + 1).forEach((part, offset) => {
      const index = first + offset;
      const [start, end] = [this.starts[index], this.starts[index + 1]];
      const [left, right] = [Math.max(start, spanStart), Math.min(end, spanEnd)];
      if (isTag(part) ? left <= right && !this.#usedTags.has(index) : left < right && right - left === end - start) {
        selected.push({ ...part, index });
      } else if (!isTag(part) && left < right) { // a cut item is plain text
        const begin = part.start + left - start;
        const text = part.text.slice(left - start, right - start);
        selected.push({ text, start: begin, end: begin + text.length, index });
      }
    });
    for (let rest = withoutEdgeTags(selected); rest.length < selected.length; rest = withoutEdgeTags(selected)) selected = rest;
    for (const part of selected) if (isTag(part)) this.#usedTags.add(part.index);
    return this.#withParts(selected.map(({ index, ...part }) => part));
  }

  /** Return this text with spans of `text` as items, which the vocabulary lacks. */
  withUnknown(spans) {
    const parts = [];
    let spanIndex = 0; // of the first span that ends in this part, or after it
    this.parts.forEach((part, index) => {
      const offset = this.starts[index];
      let cut = 0;
      while (spans[spanIndex]?.end <= offset) spanIndex++;
      for (let next = spanIndex; !part.kind && spans[next]?.start < this.starts[index + 1]; next++) {
        const { start, end, kind } = spans[next];
        const [first, last] = [Math.max(start - offset, cut), Math.min(end - offset, part.text.length)];
        if (first >= last) continue;
        const span = [part.start + first, part.start + last];
        parts.push({ text: part.text.slice(cut, first), start: part.start + cut, end: span[0] });
        parts.push({ text: this.form.sourceText(span), start: span[0], end: span[1], kind });
        cut = last;
      }
      parts.push({ ...part, text: part.text.slice(cut), start: part.start + cut });
    });
    const result = this.#withParts(parts.filter(({ text }) => text));
    const unknown = result.items.filter((index) => UNKNOWN_KINDS.includes(result.parts[index].kind));
    return result.#changed({ standIns: result.#standInsFor(unknown) });
  }

  /** Return this text with a number for each placeholder of a number: see keeping.py. */
  withNumbersForPlaceholders() {
    const placeholders = this.items.filter((index) => isNumberPlaceholder(this.parts[index]));
    return placeholders.length ? this.#changed({ standIns: this.#standInsFor(placeholders) }) : this;
  }

  /** Return the used stand-ins, and an unused one for each of these items, while they last. */
  #standInsFor(items) {
    const standIns = new Map(this.standIns);
    const words = this.parts.map(({ text, kind }) => (kind === "amounts" ? "" : text)).join("");
    const tried = new Set(this.tried.flat());
    const used = new Set([...tried, ...standIns.values()]);
    const counts = new Map();
    const isInWords = (text) => counts.get(text) ?? counts.set(text, countStandIn(text, words) > 0).get(text);
    for (const index of items) {
      // arrows share one; a stand-in that the sentence itself has could not be told apart in the translation
      const others = this.parts[index].kind === "arrows" ? tried : used;
      const standIn = standInsOf(this.parts[index]).find((text) => !others.has(text) && !isInWords(text));
      if (standIn === undefined) continue;
      standIns.set(index, standIn);
      used.add(standIn);
    }
    return standIns;
  }

  /**
   * Return the items, or their stand-ins, in a translation, and its foreign items.
   *
   * A foreign item is of the same kinds, but the source does not have it, or not as often.
   */
  itemsIn(translation) {
    const items = this.keeps ? itemsOf(translation) : [];
    const standIns = [...new Set(this.standIns.values())].flatMap((text) =>
      Array.from(translation.matchAll(standInPattern(text)), ({ index }) => ({ text, start: index, end: index + text.length })));
    items.push(...standIns.filter((standIn) => !overlaps(standIn, items)));
    const copies = new Map(); // items by their text, the last one first
    for (const item of items.toReversed()) copies.has(item.text) ? copies.get(item.text).push(item) : copies.set(item.text, [item]);
    const matches = new Map();
    for (const index of this.items) {
      const copy = copies.get(this.#textOf(index))?.pop();
      if (copy) matches.set(index, copy);
    }
    const matched = new Set(matches.values());
    return { matches, foreignItems: items.filter((item) => !matched.has(item)) };
  }

  /**
   * Return the items that a translation does not have, or whose stand-ins it does not have as often as its source.
   *
   * A translation with a fragment of a placeholder, such as a spare "%", has lost all items.
   */
  lost(translation) {
    const { matches, foreignItems } = this.itemsIn(translation);
    const items = [...matches.values(), ...foreignItems].map(({ text }) => text).join("");
    const words = this.parts.map(({ text, kind }) => (kind ? "" : text)).join("");
    const hasHalf = (sign) => countOf(sign, translation) - countOf(sign, items) > countOf(sign, words);
    if (this.keeps && [..."%{}"].some(hasHalf)) return this.items;
    const expected = new Map();
    for (const text of this.standIns.values()) expected.set(text, (expected.get(text) ?? 0) + 1);
    const leaking = new Set(Array.from(expected).filter(([text, count]) => countStandIn(text, translation) !== count).map(([text]) => text));
    return this.items.filter((index) => !matches.has(index) || leaking.has(this.standIns.get(index)));
  }

  /** Return this text with new stand-ins for lost items; null if they have run out. A placeholder that lost its first number is read as it is. */
  withStandIns(lost) {
    const tried = [...this.tried, lost.flatMap((index) => this.standIns.get(index) ?? [])];
    const lostIndices = new Set(lost);
    const unchanged = new Map([...this.standIns].filter(([index]) => !lostIndices.has(index)));
    const lostItems = lost.filter((index) => this.tried.length || !this.standIns.has(index) || !isNumberPlaceholder(this.parts[index]));
    const standIns = this.#changed({ standIns: unchanged, tried }).#standInsFor(lostItems);
    return tried.length <= MAX_ROUNDS && lostItems.every((index) => standIns.has(index)) ? this.#changed({ standIns, tried }) : null;
  }

  /** Return the parts between items that have words. */
  aroundItems() {
    const edges = [0, ...this.items.flatMap((index) => [this.starts[index], this.starts[index + 1]]), this.text.length];
    const spans = [];
    for (let index = 0; index < edges.length; index += 2) {
      let [start, end] = [edges[index], edges[index + 1]];
      while (start < end && AROUND_ITEMS.includes(this.text[start])) start++;
      while (start < end && AROUND_ITEMS.includes(this.text[end - 1])) end--;
      if (hasLetters(this.text.slice(start, end))) spans.push([start, end]);
    }
    return spans.map((span) => this.part(span));
  }
}

/** Return spans with the number beside a sign, such as "£20" or "3 × 4", as one. */
export function withNumbers(text, spans) {
  let previousEnd = 0; // of the previous span, with its number
  return spans.flatMap(({ start, end, kind }) => {
    if (start < previousEnd) return [];
    if (kind === "signs") {
      const sign = text.slice(start, end);
      const [left, right] = [text.slice(Math.max(start - MAX_NUMBER, previousEnd), start), text.slice(end, end + MAX_NUMBER)];
      let [leftSide, rightSide] = [LEFT_SIDE.exec(left), RIGHT_SIDE.exec(right)];
      if (!(/^\p{Sm}/u.test(sign) && leftSide && rightSide)) [leftSide, rightSide] = [BEFORE_SIGN.exec(left), AFTER_SIGN.exec(right)];
      if (/^\p{Sc}/u.test(sign) && leftSide && rightSide) [leftSide, rightSide] = rightSide[1] ? [leftSide, null] : [null, rightSide];
      const isBetweenWords = hasLetters(left.slice(-3)) && hasLetters(right.slice(0, 3));
      if (ARROWS.includes(sign) && !leftSide && !rightSide && isBetweenWords) kind = "arrows";
      start -= leftSide?.[0].length ?? 0;
      end += rightSide?.[0].length ?? 0;
      if (leftSide || rightSide) kind = "amounts";
    }
    previousEnd = end;
    return [{ start, end, kind }];
  });
}

function standInsOf(item) {
  const { text, kind } = item;
  if (kind === "arrows") return [ARROW_STAND_IN];
  if (kind === "numerals") return STAND_INS.amount;
  if (kind !== "amounts") return isNumberPlaceholder(item) ? STAND_INS.count : STAND_INS.name;
  const numbers = text.match(/\p{Nd}+/gu) ?? [];
  return numbers.length === 1 ? [...numbers, ...STAND_INS.amount] : STAND_INS.amount;
}

/** Return the pattern of a stand-in in a translation: a word, or a number that is not a part of another. */
function standInPattern(standIn) {
  if (!hasLetters(standIn)) return new RegExp(`(?<![\\p{L}\\p{N}_.,])${standIn}(?![\\p{L}\\p{N}_]|[.,]\\p{Nd})`, "gu");
  return new RegExp(`(?<![\\p{L}\\p{N}_])${standIn}(?![\\p{L}\\p{N}_])`, "gu");
}

/** Return how often a stand-in is in a text, also as a part of a word. */
function countStandIn(standIn, text) {
  if (hasLetters(standIn)) return countOf(standIn, text);
  return text.match(new RegExp(`(?<!\\p{Nd})${standIn}(?!\\p{Nd})`, "gu"))?.length ?? 0;
}
