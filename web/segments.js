// Texts, the pieces they are translated in, and what a translation has as its source does.
//
// It follows text/segments.py, text/keeping.py and text/restoring.py, but for tags, emoji and lone signs: here they divide
// a sentence, whose parts are translated one by one. Python puts them back by an alignment.

import { AROUND_ITEMS, MAX_WORD, MAX_ROUNDS, PATTERNS, QUOTES, STAND_INS } from "./interface.js";
import { itemsOf, withCapitals, withoutCapitals, withoutCopiedEdges } from "./keeping.js";
import { EXTENDS, unknownTokens } from "./normal.js";
import { between, splitSentences, splitToFit, stripped } from "./sentences.js";
import { isMark, runsOn, withSpace, wordsOf } from "./words.js";

const LONE_SURROGATES = /[\ud800-\udfff]/gu;
const LONG_WORD = new RegExp(PATTERNS.LONG_WORD, "gu");
const BREAK = "\x1e"; // a sentence ends here
const DIVIDING = ["tags", "emoji"];
const LONGEST_NUMBER = 32; // characters beside a sign that are looked at
const [BEFORE_SIGN, LEFT_SIDE] = [PATTERNS.BEFORE_SIGN, PATTERNS.LEFT_SIDE].map((pattern) => new RegExp(pattern, "u"));
const [AFTER_SIGN, RIGHT_SIDE] = [PATTERNS.AFTER_SIGN, PATTERNS.RIGHT_SIDE].map((pattern) => new RegExp(`^${pattern}`, "u"));
const hasLetters = (text) => /\p{L}/u.test(text);
const overlaps = (span, spans) => spans.some(({ start, end }) => span.start < end && start < span.end);
const count = (part, text) => text.split(part).length - 1;

/** Turns texts into documents: cuts them, tokenises each piece once. */
export class Segmenter {
  /** `limit`: the most tokens of a source; `noText`: tokens without text. */
  constructor(vocabulary, rules, limit, noText) {
    Object.assign(this, { vocabulary, rules, limit, noText });
  }

  /**
   * Cut a text into pieces that fit.
   *
   * `copies`: leave out what is not a sentence, and keep items in sentences; `truncates`: return the first piece alone.
   */
  document(userText, { splits = true, copies = true, truncates = false } = {}) {
    const text = userText.replace(LONE_SURROGATES, "\ufffd");
    const foreign = [];
    const shortened = !splits || text.length <= MAX_WORD ? text : text.replace(LONG_WORD, (word, start) => {
      foreign.push([start, start + word.length]);
      return "\n".repeat(word.length);
    });
    const small = copies ? withoutCapitals(shortened) : null;
    const source = new Source(this.vocabulary, small ?? shortened, copies);
    const document = { text, copies: copies || foreign.length > 0, inCapitals: small !== null, foreign, pieces: [] };
    const cuts = source.gluedCuts();
    for (const sentence of cutAt(cuts, source.sentences(splits && this.rules))) {
      const span = copies ? source.withoutQuotes(withoutCopiedEdges(source.text, sentence)) : sentence;
      if (span[0] === span[1]) continue;
      const fits = (part) => this.#encode(part).ids.length <= this.limit;
      const parts = fits(source.text.slice(...span)) ? [span] : splitToFit(source.text, span, fits);
      for (const part of parts.slice(0, truncates ? 1 : undefined)) {
        const pieces = this.#pieces(source, part, copies);
        pieces.forEach((piece) => (piece.isGlued = cuts.has(piece.from)));
        document.pieces.push(...pieces.filter(({ isForeign }) => !isForeign));
        foreign.push(...pieces.filter(({ isForeign }) => isForeign).map(({ start, end }) => [start, end]));
      }
    }
    return document;
  }

  #encode(text) {
    return this.vocabulary.tokenizer.encode(text);
  }

  /** Return a sentence, or a part of one, as pieces: several if signs that the vocabulary lacks divide it. */
  #pieces(source, [from, to], copies) {
    const text = source.text.slice(from, to);
    let piece = new Piece(source, from, to, source.itemsIn(from, to), this.#encode(text));
    const unknown = unknownTokens(this.vocabulary, text, piece);
    if (unknown.size && copies) {
      const spans = withNumbers(text, this.#unknownSpans(piece, unknown));
      const signs = spans.filter(({ kind }) => kind === "signs");
      if (signs.length) {
        const edges = [0, ...signs.flatMap(({ start, end }) => [start, end]), text.length];
        const parts = signs.concat({}).map((_, number) => stripped(text, edges.slice(2 * number, 2 * number + 2)));
        return parts.filter((part) => hasLetters(text.slice(...part)))
          .flatMap(([start, end]) => this.#pieces(source, [from + start, from + end], copies));
      }
      const items = spans.map(({ start, end, kind }) =>
        ({ text: source.sourceText([from + start, from + end]), start: from + start, end: from + end, kind }));
      const all = [...piece.items, ...items].sort((left, right) => left.start - right.start);
      const masked = items.length && this.#written(new Piece(source, from, to, all), items);
      if (masked && masked.ids.length <= this.limit) piece = masked;
    }
    const isUnknown = piece.ids.includes(this.vocabulary.unknown) && !isMark(text);
    if (piece.hasWords && (isUnknown || piece.ids.some((token) => !this.noText.has(token)))) return [piece];
    return unknown.size ? [Object.assign(piece, { isForeign: true })] : [];
  }

  /** Return a piece with stand-ins for some of its items, as far as there are any left. */
  #written(piece, items) {
    const words = piece.textBetween((item) => (item.kind === "amounts" ? "" : item.text));
    for (const item of items) {
      const used = [...piece.tried.flat(), ...piece.standIns.values()];
      const standIn = standInsOf(item).find((text) => !used.includes(text) && !countStandIn(text, words));
      if (standIn !== undefined) piece.standIns.set(item, standIn);
    }
    return piece.write(this.#encode(piece.textBetween((item) => piece.standIns.get(item) ?? item.text)));
  }

  /** Return the words with unknown tokens, several in a row as one, and the signs that the vocabulary lacks. */
  #unknownSpans(piece, unknown) {
    const { text } = piece;
    let [spans, last] = [[], null];
    for (const { span: [start, end], tokens } of wordsOf(text, piece.offsets)) {
      if (!tokens.some((token) => unknown.has(token)) || piece.isCopied([start, end])) continue;
      const word = text.slice(start, end);
      const combines = EXTENDS.test(word);
      if (last && start === last.end && combines) last.end = end;
      else if (isMark(word)) {
        if (!combines && !this.vocabulary.has(word)) spans.push({ start, end, kind: "signs" });
      } else if (last && isMark(text.slice(last.end, start))) {
        spans = spans.filter((span) => span.start <= last.start);
        last.end = end;
      } else spans.push(last = { start, end, kind: "unknown" });
    }
    return spans;
  }

  /** Return what is translated instead of a piece whose translation has lost items: other stand-ins, or what is between. */
  again(piece, translation) {
    const lost = piece.lost(translation);
    if (!lost.length) return [];
    const next = new Piece(piece.source, piece.from, piece.to, piece.items);
    next.tried = [...piece.tried, lost.flatMap((item) => piece.standIns.get(item) ?? [])];
    piece.standIns.forEach((text, item) => lost.includes(item) || next.standIns.set(item, text));
    next.isGlued = piece.isGlued;
    if (next.tried.length <= MAX_ROUNDS) {
      this.#written(next, lost);
      if (lost.every((item) => next.standIns.has(item)) && next.ids.length <= this.limit) return [next];
    }
    return piece.betweenItems().map(([from, to]) => {
      const part = new Piece(piece.source, from, to, [], this.#encode(piece.source.text.slice(from, to)));
      part.isGlued = piece.isGlued && from === piece.from;
      return part;
    });
  }
}

/** The normal form of a text, with its items. */
class Source {
  constructor(vocabulary, text, copies) {
    const items = copies ? itemsOf(text) : [];
    this.form = vocabulary.normalForm(text, items.map(({ start, end }) => [start, end]));
    [this.text, this.shadow] = [this.form.text, this.form.text];
    this.items = items.map((item) => {
      const start = this.form.offset(item.start);
      const end = start + item.text.length;
      const shadow = DIVIDING.includes(item.kind) ? BREAK : "X"; // it holds no marks of sentences
      this.text = this.text.slice(0, start) + item.text + this.text.slice(end);
      this.shadow = this.shadow.slice(0, start) + shadow.repeat(end - start) + this.shadow.slice(end);
      return { ...item, start, end };
    });
  }

  /** Return the spans of sentences; without `rules`, of what tags and emoji divide. */
  sentences(rules) {
    if (rules) return splitSentences(this.shadow, rules);
    const spans = this.items.length ? between(/\x1e+/g, this.shadow) : [[0, this.text.length]];
    return spans.map((span) => stripped(this.text, span)).filter(([start, end]) => start < end);
  }

  itemsIn(from, to) {
    return this.items.filter(({ start, end }) => from <= start && end <= to);
  }

  /** Return where a placeholder ends, or begins, beside a letter: a word of another sentence, as in "{0}Welcome". */
  gluedCuts() {
    const ends = this.items.filter(({ kind }) => kind === "placeholders").flatMap(({ start, end }) =>
      [
        ...(/\p{L}$/u.test(this.text.slice(Math.max(start - 2, 0), start)) ? [start] : []),
        ...(/^\p{L}/u.test(this.text.slice(end, end + 2)) ? [end] : []),
      ]);
    return new Set(ends);
  }

  /** Return a sentence without quotes around all of it, if the model reads them only as plain ones. */
  withoutQuotes([start, end]) {
    if (end - start < 3 || !"'\"".includes(this.text[start])) return [start, end];
    const [left, inner, right] = [[start, start + 1], [start + 1, end - 1], [end - 1, end]]
      .map((span) => this.form.source.slice(...this.form.sourceSpan(span)));
    const isAround = right !== "" && QUOTES[left]?.includes(right) && !inner.includes(left) && !inner.includes(right);
    return isAround ? [start + 1, end - 1] : [start, end];
  }

  sourceText(span) {
    return this.form.sourceText(span);
  }
}

/**
 * What goes through the model at once: the characters `from` to `to` of a `Source`, which are those from `start` to `end`
 * of the user's text. Stand-ins are written for some of its items.
 */
export class Piece {
  isGlued = false;
  standIns = new Map();
  tried = []; // stand-ins that earlier translations have not kept

  constructor(source, from, to, items, encoded) {
    Object.assign(this, { source, from, to, items });
    [this.start, this.end] = source.form.sourceSpan([from, to]);
    if (encoded) this.write(encoded);
  }

  /** Set what the model reads. */
  write({ ids, offsets }) {
    this.places = []; // of the items in the text
    this.text = this.textBetween((item, start) => {
      const text = this.standIns.get(item) ?? item.text;
      this.places.push({ start, end: start + text.length, item });
      return text;
    });
    return Object.assign(this, { ids, offsets });
  }

  /** Return the text with something written for each item. */
  textBetween(write) {
    let [text, last] = ["", this.from];
    for (const item of this.items) {
      text += this.source.text.slice(last, item.start);
      text += write(item, text.length);
      last = item.end;
    }
    return text + this.source.text.slice(last, this.to);
  }

  get hasWords() {
    return !this.items.length || hasLetters(this.textBetween(() => ""));
  }

  /** Return the characters of the source behind an offset of `text`; of an item's, one of its ends. */
  #sourceOffset(offset, isEnd) {
    let at = this.from;
    let last = 0;
    for (const { start, end, item } of this.places) {
      if (isEnd ? offset <= start : offset < start) break;
      if (isEnd ? offset <= end : offset < end) return isEnd ? item.end : item.start;
      [at, last] = [item.end, end];
    }
    return at + offset - last;
  }

  /** Return the characters of the user's text behind some of `text`. */
  sourceSpan([start, end]) {
    return this.source.form.sourceSpan([this.#sourceOffset(start, false), this.#sourceOffset(end, true)]);
  }

  sourceText(span) {
    return this.source.form.source.slice(...this.sourceSpan(span));
  }

  /** Whether some characters of `text` are of an item, which the translation has as it is. */
  isCopied([start]) {
    return this.places.some((place) => place.start <= start && start < place.end);
  }

  get keeps() {
    return this.source.items.length > 0;
  }

  /** Return where the items, or their stand-ins, are in a translation, and what else it has of their kinds. */
  itemsIn(translation) {
    const others = this.keeps ? itemsOf(translation) : [];
    for (const text of this.standIns.values()) {
      for (const match of translation.matchAll(patternOf(text))) {
        const standIn = { text, start: match.index, end: match.index + text.length };
        if (!overlaps(standIn, others)) others.push(standIn);
      }
    }
    const matches = new Map();
    for (const item of this.items) {
      const index = others.findIndex(({ text }) => text === (this.standIns.get(item) ?? item.text));
      if (index >= 0) matches.set(item, ...others.splice(index, 1));
    }
    return { matches, others };
  }

  /**
   * Return the items that a translation does not have, or whose stand-ins it does not have exactly once.
   *
   * All are lost where it has halves of placeholders, such as a "%" more.
   */
  lost(translation) {
    if (!this.items.length) return [];
    const { matches, others } = this.itemsIn(translation);
    const items = [...matches.values(), ...others].map(({ text }) => text).join("");
    const words = this.textBetween(() => "");
    const hasHalf = (sign) => count(sign, translation) - count(sign, items) > count(sign, words);
    if (this.keeps && [..."%{}"].some(hasHalf)) return this.items;
    const leaks = (item) => this.standIns.has(item) && countStandIn(this.standIns.get(item), translation) !== 1;
    return this.items.filter((item) => !matches.has(item) || leaks(item));
  }

  /** Return a translation with its items, and without those that the model has invented. */
  restored(translation) {
    const { matches, others } = this.itemsIn(translation);
    const invented = others.filter((other) => !overlaps(other, [...matches.values()]));
    const edits = [...invented.map((span) => [span, ""]), ...Array.from(matches, ([item, span]) => [span, item.text])]
      .sort(([left], [right]) => left.start - right.start);
    const written = edited(translation, edits);
    const textsOf = (items) => items.map(({ text }) => text).sort().join("\n");
    const expected = this.items.filter(({ kind }) => kind !== "unknown" && kind !== "amounts");
    if (!this.keeps || textsOf(itemsOf(written)) === textsOf(expected)) return written;
    // an item has become another one with what is beside it
    return edited(translation, edits.map(([span, text]) => [span, text && ` ${text} `]));
  }

  /** Return the spans of the source between the items that have words. */
  betweenItems() {
    const edges = [this.from, ...this.items.flatMap(({ start, end }) => [start, end]), this.to];
    const spans = [];
    for (let index = 0; index < edges.length; index += 2) {
      let [start, end] = [edges[index], edges[index + 1]];
      while (start < end && AROUND_ITEMS.includes(this.source.text[start])) start++;
      while (start < end && AROUND_ITEMS.includes(this.source.text[end - 1])) end--;
      if (hasLetters(this.source.text.slice(start, end))) spans.push([start, end]);
    }
    return spans;
  }
}

/**
 * Join the translations of the pieces with what is between them in the text, mostly a space; return where each starts.
 *
 * `copies`: also what is before and after all of them; `inCapitals`: the text is, so the translation is, too.
 */
export function joinTranslations({ text, pieces, copies, inCapitals }, translations) {
  let [joined, last] = ["", 0];
  const starts = pieces.map(({ start, end, isGlued }, number) => {
    let between = number || copies ? text.slice(last, start) : "";
    if (number && !between.replace(/^ +$/, "") && !(isGlued && !between)) {
      between = runsOn(joined, translations[number]) ? "" : between || " ";
    }
    joined = withSpace(withSpace(joined, between), translations[number]);
    last = end;
    return joined.length - translations[number].length;
  });
  if (copies) joined = withSpace(joined, text.slice(last));
  return { text: inCapitals ? withCapitals(joined) : joined, starts };
}

function edited(text, edits) {
  let [written, last] = ["", 0];
  for (const [{ start, end }, replacement] of edits) {
    if (text.slice(start, end) === replacement) continue;
    written = withSpace(withSpace(written, text.slice(last, start)), replacement);
    last = end;
  }
  return withSpace(written, text.slice(last));
}

function cutAt(cuts, spans) {
  return spans.flatMap(([start, end]) => {
    const edges = [start, ...[...cuts].filter((cut) => start < cut && cut < end).sort((left, right) => left - right), end];
    return edges.slice(1).map((edge, index) => [edges[index], edge]);
  });
}

/** Return spans with the number beside a sign, such as "£20" or "3 × 4", as one. */
function withNumbers(text, spans) {
  let minStart = 0; // after the number of the one before
  return spans.flatMap(({ start, end, kind }) => {
    if (start < minStart) return [];
    if (kind === "signs") {
      const [sign, left] = [text.slice(start, end), text.slice(Math.max(start - LONGEST_NUMBER, minStart), start)];
      const right = text.slice(end, end + LONGEST_NUMBER);
      let [before, after] = [LEFT_SIDE.exec(left), RIGHT_SIDE.exec(right)];
      if (!(/^\p{Sm}/u.test(sign) && before && after)) [before, after] = [BEFORE_SIGN.exec(left), AFTER_SIGN.exec(right)];
      if (/^\p{Sc}/u.test(sign) && before && after) [before, after] = after[1] ? [before, null] : [null, after];
      start -= before?.[0].length ?? 0;
      end += after?.[0].length ?? 0;
      if (before || after) kind = "amounts";
    }
    minStart = end;
    return [{ start, end, kind }];
  });
}

function standInsOf({ text, kind }) {
  if (kind !== "amounts") return /^%.*[difugx]$/.test(text) ? STAND_INS.amount : STAND_INS.name;
  const numbers = text.match(/\p{Nd}+/gu) ?? [];
  return numbers.length === 1 ? [...numbers, ...STAND_INS.amount] : STAND_INS.amount;
}

/** Return the pattern of a stand-in in a translation: a word, or a number that is not a part of another. */
function patternOf(standIn) {
  if (!hasLetters(standIn)) return new RegExp(`(?<![\\p{L}\\p{N}_.,])${standIn}(?![\\p{L}\\p{N}_]|[.,]\\p{Nd})`, "gu");
  return new RegExp(`(?<![\\p{L}\\p{N}_])${standIn}(?![\\p{L}\\p{N}_])`, "gu");
}

/** Return how often a stand-in is in a text, also as a part of a word. */
function countStandIn(standIn, text) {
  if (hasLetters(standIn)) return count(standIn, text);
  return text.match(new RegExp(`(?<!\\p{Nd})${standIn}(?!\\p{Nd})`, "gu"))?.length ?? 0;
}
