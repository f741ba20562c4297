// What a model reads of a part of a form: without tags, and with stand-ins for items that models do not copy. It follows
// text/reading.py.

import { AROUND_ITEMS, BREAK, LOWERCASE, MAX_ROUNDS, NUMBER_PLACEHOLDER_PATTERN, STAND_INS, TAG_NAME_PATTERN } from "./interface.js";
import { escaped, regex } from "./patterns.js";
import { inForm, isItem, isTag, itemsIn, kindOf } from "./rewriting.js";
import { firstOf, hasLetters, isLower, isMark, isUpper, lastUpTo } from "./words.js";

const [NUMBER_PLACEHOLDER, TAG_NAME] = [`^(?:${NUMBER_PLACEHOLDER_PATTERN})$`, `^${TAG_NAME_PATTERN}`].map((source) => regex(source));
const AMOUNTS = ["amount", "formula"];
const countOf = (part, text) => text.split(part).length - 1;
/** Return a pattern of a text in a translation: a whole word, a whole number, or the text itself. */
function inTranslation(text) {
  if (/^\p{L}+$/u.test(text)) return `(?<![\\w])${text}(?![\\w])`;
  if (/^\p{Nd}+$/u.test(text)) return `(?<![\\w.,])${text}(?![\\w]|[.,]\\d)`;
  return escaped(text);
}
/** Return how often a stand-in is in a text, also as a part of a word. */
const countStandIn = (standIn, text) => (hasLetters(standIn) ? countOf(standIn, text) : text.match(regex(`(?<!\\d)${standIn}(?!\\d)`, "gu"))?.length ?? 0);

/** Return whether a span shares a character with any of sorted spans, none of which overlaps another. */
export function overlapping(spans) {
  const ends = spans.map(({ end }) => end);
  return ({ start, end }) => spans[lastUpTo(ends, start) + 1]?.start < end;
}

export const inOrder = (spans) => spans.toSorted((left, right) => left.start - right.start || left.end - right.end);

// ---- parts: { text, start, end, edit }: what the model reads or, of an item, what the translation has; its span of the form,
// which is empty for what we add; and the edit of an item or a tag
const isItemPart = ({ edit }) => edit !== undefined && isItem(edit);
const isTagPart = ({ edit }) => edit !== undefined && isTag(edit);
export const isEmphasis = ({ edit }) => edit?.row === "emphasis";
/** Return the text that the translation has for an item or a tag, or the text of another part. */
export const writtenOf = ({ text, edit }) => edit?.back ?? text;

/** Whether an item is one placeholder for a number, without text glued to it. */
const isNumberPlaceholder = ({ row, back }) => row === "placeholder" && NUMBER_PLACEHOLDER.test(back);

function standInsOf(edit) {
  if (isNumberPlaceholder(edit)) return STAND_INS.count;
  return STAND_INS[kindOf(edit) === "numerals" || AMOUNTS.includes(edit.row) ? "amount" : "name"];
}

/** Return the parts of a span of a form's text; a tag at an edge only if its partner is inside, too. `mark`: the part that the model reads instead of the end. */
export function partsIn(form, [start, end], mark = null) {
  const [parts, stop] = [[], mark?.start ?? end];
  let position = start;
  const textUpTo = (last) => (position < last ? [{ text: form.text.slice(position, last), start: position, end: last }] : []);
  for (const { offset, edit } of form.copiesIn([start, end])) {
    parts.push(...textUpTo(Math.min(offset, stop)));
    position = offset + inForm(edit).length;
    parts.push({ text: edit.model ?? edit.back, start: offset, end: position, edit });
  }
  const content = trimmed([...parts, ...textUpTo(stop)]);
  if (!mark) return content;
  position = mark.end;
  const index = content.findIndex((part) => part.start >= mark.end && isTagPart(part));
  return content.toSpliced(index < 0 ? content.length : index, 0, mark, ...textUpTo(end));
}

/** Return parts without the tags at the edges whose partners are there, too, or outside. */
function trimmed(parts) {
  const content = [...parts.keys()].filter((index) => !isTagPart(parts[index]));
  if (!content.length || content.length === parts.length) return parts; // most sentences
  const [first, last, partners] = [content[0], content.at(-1), partnersOf(parts)];
  const kept = [...parts.keys()].filter((tag) => (tag < first || tag > last) && first < partners.get(tag) && partners.get(tag) < last);
  return parts.slice(Math.min(first, kept[0] ?? first), Math.max(last, kept.at(-1) ?? last) + 1);
}

/**
 * Return the index of each start tag's end tag among the parts, and of each end tag's start tag.
 *
 * Empty if elements overlap: then it is unclear which tag a translation must open or close first.
 */
export function partnersOf(parts) {
  const [openTags, numOpen, unclosed, partners] = [[], new Map(), new Set(), new Map()]; // unclosed: by the element around them
  const count = (name, change) => numOpen.set(name, (numOpen.get(name) ?? 0) + change);
  for (const [index, part] of parts.entries()) {
    const tag = isTagPart(part) && TAG_NAME.exec(part.edit.back);
    if (!(tag || isEmphasis(part)) || part.edit.back.endsWith("/>")) continue;
    const name = tag ? tag[2].toLowerCase() : part.edit.back;
    if (tag ? !tag[1] : !numOpen.get(name)) {
      openTags.push({ index, name });
      count(name, 1);
    } else if (numOpen.get(name)) {
      let opening;
      while ((opening = openTags.pop()).name !== name) {
        count(opening.name, -1);
        unclosed.add(opening.name);
      }
      count(name, -1);
      partners.set(opening.index, index).set(index, opening.index);
    } else if (unclosed.has(name)) return new Map();
  }
  return partners;
}

/**
 * What goes through the model at once: a part of a form as it reads it, with `ids` and `offsets` once it is tokenised.
 *
 * `text`: what the model reads; spans count its characters. `standIns`: by the index of the part; `tried`: stand-ins that
 * earlier translations have lost, a list for each; `start`, `end`: its span of the user's text.
 */
export class Piece {
  mark = null; // what the model reads at the end of the sentence, if it reads another mark there: see `endingOf`
  sourceCase = null; // of the user's line, if the model reads it in sentence case instead
  isLabel = false; // whether it is the only word of the user's line, as in a menu
  forms = []; // of a label: pieces that the model reads, too; the translation that most forms have wins

  constructor(form, parts, { standIns, tried = [], ...fields } = {}) {
    Object.assign(this, { form, parts, tried, text: "", starts: [] }, fields);
    [this.items, this.tags] = [isItemPart, isTagPart].map((test) => parts.flatMap((part, index) => (test(part) ? [index] : [])));
    this.standIns = standIns ?? this.#firstStandIns();
    this.texts = parts.map(({ text }, index) => this.standIns.get(index) ?? text.replaceAll(BREAK, " "));
    for (const text of this.texts) {
      this.starts.push(this.text.length);
      this.text += text;
    }
    this.starts.push(this.text.length);
    [this.start, this.end] = [this.#startOf(parts[0]), this.#endOf(parts.at(-1))];
  }

  get userText() {
    return this.form.source.slice(this.start, this.end);
  }

  /** What the user's sentence has instead of the final mark that the model reads; null if it reads the same. */
  get ending() {
    if (!this.mark) return null;
    const { text: mark, start, end } = this.mark;
    const ending = start < end ? this.form.source.slice(...this.form.userSpan([start, end])) : "";
    return !ending || ending.includes(mark) || mark === "." ? ending : this.form.text.slice(start, end); // the user's marks may be full width
  }

  #startOf({ text, start, end, edit }, offset = 0) {
    return edit ? edit.start : this.form.userSpan([start + (text.length === end - start ? offset : 0), end])[0];
  }

  #endOf({ text, start, end, edit }, charactersAfter = 0) {
    if (edit) return edit.end;
    if (start === end) return start ? this.form.userSpan([start - 1, start])[1] : 0;
    return this.form.userSpan([start, end - (text.length === end - start ? charactersAfter : 0)])[1];
  }

  #partAt(offset) {
    return Math.max(lastUpTo(this.starts, offset), 0);
  }

  /** Return the span of the user's text behind a span of `text`; an item is never cut. */
  userSpan([first, end]) {
    const [left, right] = [this.#partAt(first), this.#partAt(end - 1)];
    const start = this.#startOf(this.parts[left], first - this.starts[left]);
    return [start, Math.max(start, this.#endOf(this.parts[right], this.starts[right + 1] - end))];
  }

  /** Whether there are letters to translate outside the items, or no items at all. */
  get hasWords() {
    return !this.items.length || this.parts.some(({ text, edit }) => !edit && hasLetters(text));
  }

  /** Whether the form lowercased the first letter of the user's text. */
  get hasLowercasedFirst() {
    if (!this.form.edits.some(({ row }) => row === "lacked capital")) return false;
    const [written, read] = [this.userText, this.text].map((text) => /\p{L}/u.exec(text)?.[0] ?? "");
    return isUpper(written) && isLower(read);
  }

  /** Whether a span of `text` begins in an item, which the translation copies. */
  isCopied([start]) {
    return isItemPart(this.parts[this.#partAt(start)]);
  }

  /** Whether a span of `text` stands for nothing in the user's text. */
  isAdded([start]) {
    const part = this.parts[this.#partAt(start)];
    return !part.edit && part.start === part.end;
  }

  /**
   * Return this piece with words, whose spans are in order, as items; those across a tag or an item stay. Words with only marks
   * between them are one item.
   */
  withUnknownWords(words) {
    const spans = [];
    const isInOnePart = (start, end) => this.#partAt(start) === this.#partAt(end - 1);
    for (const [start, end] of words) {
      const last = spans.at(-1);
      if (last && isMark(this.text.slice(last[1], start)) && isInOnePart(last[0], end)) last[1] = end;
      else if (isInOnePart(start, end)) spans.push([start, end]);
    }
    let pending = 0; // the next span
    return this.#with(this.parts.flatMap((part, index) => {
      const offset = this.starts[index];
      if (part.edit || part.text.length !== part.end - part.start) return [part];
      const [parts, cutAt] = [[], (first, last) => ({ text: part.text.slice(first, last), start: part.start + first, end: part.start + last })];
      let cut = 0;
      for (; spans[pending]?.[1] <= offset + part.text.length; pending++) {
        const [first, last] = spans[pending].map((edge) => edge - offset);
        const [start, end] = this.form.userSpan([part.start + first, part.start + last]);
        const back = this.form.source.slice(start, end);
        parts.push(cutAt(cut, first), { ...cutAt(first, last), text: back, edit: { row: "unknown word", start, end, model: null, back } });
        cut = last;
      }
      return [...parts, cutAt(cut, part.text.length)].filter(({ text }) => text);
    }));
  }

  /** Return this piece with other parts or fields. */
  #with(parts, fields = {}) {
    const { mark, sourceCase, isLabel } = this;
    return new Piece(this.form, parts, { mark, sourceCase, isLabel, ...fields });
  }

  /** Return this piece with a colon after its last character, inside the tags around it. */
  withColon() {
    const index = this.parts.findLastIndex((part) => !isTagPart(part)) + 1;
    const { end } = this.parts[index - 1];
    return this.#with(this.parts.toSpliced(index, 0, { text: ":", start: end, end }));
  }

  /** Return this piece in lowercase; items, and parts whose length would change, stay as they are. */
  lowercased() {
    return this.#with(this.parts.map((part) => {
      const text = part.text.toLowerCase();
      return part.edit || text.length !== part.text.length ? part : { ...part, text };
    }));
  }

  /** Return stand-ins for what the vocabulary lacks, and numbers for placeholders of numbers: see reading.py. */
  #firstStandIns() {
    const isLacked = (index) => kindOf(this.parts[index].edit) === "unknown";
    const [lacked, counts] = [this.items.filter(isLacked), this.items.filter((index) => isNumberPlaceholder(this.parts[index].edit))];
    return lacked.length + counts.length ? this.#withUnused(counts, this.#withUnused(lacked, new Map())) : new Map();
  }

  /** Return the used stand-ins, and an unused one for each of these items, while they last. */
  #withUnused(items, used, tried = []) {
    const standIns = new Map(used);
    const unavailable = new Set([...tried.flat(), ...standIns.values()]);
    const words = this.parts.map(({ text, edit }) => (AMOUNTS.includes(edit?.row) ? "" : text)).join("");
    const counts = new Map();
    const isInWords = (text) => counts.get(text) ?? counts.set(text, countStandIn(text, words) > 0).get(text);
    for (const index of items) {
      // a stand-in that the sentence itself has could not be told apart in the translation
      const standIn = standInsOf(this.parts[index].edit).find((text) => !unavailable.has(text) && !isInWords(text));
      if (standIn === undefined) continue;
      standIns.set(index, standIn);
      unavailable.add(standIn);
    }
    return standIns;
  }

  /** Return this piece with new stand-ins for lost items; null if they have run out. */
  withStandIns(lost) {
    const tried = [...this.tried, lost.flatMap((index) => this.standIns.get(index) ?? [])];
    const lostIndices = new Set(lost);
    const unchanged = new Map([...this.standIns].filter(([index]) => !lostIndices.has(index)));
    const standIns = this.#withUnused(lost, unchanged, tried);
    return tried.length <= MAX_ROUNDS && lost.every((index) => standIns.has(index)) ? this.#with(this.parts, { standIns, tried }) : null;
  }

  /** Return the parts between items that have words, as pieces. */
  aroundItems() {
    const [{ text }, { mark }] = [this.form, this];
    const end = this.parts.reduce((last, part) => Math.max(last, part.end), 0);
    const edges = [this.parts[0].start, ...this.items.flatMap((index) => [this.parts[index].start, this.parts[index].end]), end];
    const isAround = (offset) => text[offset] === BREAK || AROUND_ITEMS.includes(text[offset]); // else a model closes a quote that only begins here
    const pieces = [];
    for (let index = 0; index < edges.length; index += 2) {
      let [first, last] = [edges[index], edges[index + 1]];
      while (first < last && isAround(first)) first++;
      while (first < last && isAround(last - 1)) last--;
      if (!hasLetters(text.slice(first, last))) continue;
      const ending = mark && first < mark.start && mark.end <= last ? mark : null;
      const piece = this.#with(partsIn(this.form, [first, last], ending), { mark: ending, isLabel: false });
      const sourceCase = this.sourceCase ?? (isLower(firstOf(piece.text)) ? LOWERCASE : null); // a model begins it with a capital
      pieces.push(Object.assign(piece, { sourceCase }));
    }
    return pieces;
  }

  /**
   * Return the items that a translation does not have, or whose stand-ins it does not have as often as its source.
   *
   * A translation with a fragment of a placeholder, such as a spare "%", has lost all items.
   */
  lost(translation) {
    if (!this.items.length) return [];
    const { matches, foreignItems } = this.itemsIn(translation);
    const items = [...matches.values(), ...foreignItems].map(({ start, end }) => translation.slice(start, end)).join("");
    const words = this.parts.map(({ text, edit }) => (edit ? "" : text)).join("");
    const hasHalf = (sign) => countOf(sign, translation) - countOf(sign, items) > countOf(sign, words);
    if (this.items.some((index) => this.parts[index].edit.row === "placeholder") && [..."%{}"].some(hasHalf)) return this.items;
    const isLeaking = (text) => text !== undefined && countStandIn(text, translation) !== 1; // each stand-in is read once
    return this.items.filter((index) => !matches.has(index) || isLeaking(this.standIns.get(index)));
  }

  /**
   * Return the items, or their stand-ins, in a translation, and its foreign items.
   *
   * A foreign item is of the same kinds, but the source does not have it, or not as often.
   */
  itemsIn(translation) {
    const items = itemsIn(translation, this.form.kinds);
    const [overlaps, ownItems] = [overlapping([...items]), new Set(items.map(({ text }) => text))];
    // those that the vocabulary lacks, and stand-ins: no row finds them
    const standIns = new Set(this.standIns.values());
    const hidden = [...new Set(this.items.map((index) => this.texts[index]))].filter((text) => standIns.has(text) || !ownItems.has(text));
    for (const { 0: text, index } of hidden.length ? translation.matchAll(regex(hidden.map(inTranslation).join("|"), "gu")) : []) {
      const item = { text, start: index, end: index + text.length, kind: "urls" };
      if (!overlaps(item)) items.push(item);
    }
    const copies = new Map(); // items by their text, the last one first
    for (const item of items.toReversed()) copies.has(item.text) ? copies.get(item.text).push(item) : copies.set(item.text, [item]);
    const matches = new Map();
    for (const index of this.items) {
      const copy = copies.get(this.texts[index])?.pop();
      if (copy) matches.set(index, copy);
    }
    const matched = new Set(matches.values());
    return { matches, foreignItems: items.filter((item) => !matched.has(item)) };
  }
}
