// The normal form of a text: what the model should see, and the way back to the characters of the user's text.
//
// It follows text/normal.py; tests/vectors/normal.json holds for both. Offsets count JavaScript's units of UTF-16.

import { entitiesOf } from "./entities.js";
import {
  BETWEEN_LETTERS, FIRST_RANK, INVISIBLE, LOG_RANK_OF_TOKEN, LOG_RANK_OF_UNKNOWN, MARGIN_OF_DIVIDED, MAX_CODE, MAX_RANK_OF_REPEATED, PATTERNS, PLAIN, WORD_REACH,
} from "./interface.js";
import { lastUpTo } from "./words.js";

const PLAIN_FORMS = new Map(Object.entries(PLAIN).flatMap(([plain, variants]) => Array.from(variants, (variant) => [variant, plain])));
const COMPATIBLE = new RegExp(PATTERNS.COMPATIBLE, "gu");
const [SEQUENCES, FURTHER_SEQUENCES, REPEATED, WORD, PLAIN_READ_WORD] = [
  PATTERNS.SEQUENCES, PATTERNS.FURTHER_SEQUENCES, PATTERNS.REPEATED, PATTERNS.WORD, PATTERNS.PLAIN_READ_WORD,
].map((pattern) => new RegExp(pattern, "gu"));
const ROMAN_WORD = new RegExp(`^${PATTERNS.ROMAN_WORD}`, "u");
const BEFORE_CODE_COMMA = new RegExp(PATTERNS.BEFORE_CODE_COMMA, "u");
const SENTENCE_START = new RegExp(PATTERNS.WORD_BEGINS, "u");
const ALL_INVISIBLE = new RegExp(`[${INVISIBLE}]`, "gu");
export const EXTENDS = /^[\p{M}\u1160-\u11ff]/u; // may be composed with the character before
const ASCII = /^[\0-_a-\x7f]*$/; // without the backtick, which may be an apostrophe
const TWO_LETTERS = /^(?:(?=\p{L})[\0-\u052f]){2}$/u; // Latin, Greek or Cyrillic ones
const [MAX_ANSWERS, MAX_CACHED_LENGTH] = [20000, 64]; // answers in a cache, and characters of their texts

export class NormalForm {
  /** `spans`: for each character of the form, the span of the user's text that it stands for; null if both are the same. */
  constructor(source, text = source, spans = null) {
    [this.source, this.text, this.spans, this.starts] = [source, text, spans, spans?.map(([start]) => start)];
  }

  /** Return the span of the user's text behind a span of the form. */
  sourceSpan([start, end]) {
    if (!this.spans) return [start, end];
    if (start < end) return [this.spans[start][0], this.spans[end - 1][1]];
    const offset = start < this.spans.length ? this.spans[start][0] : this.source.length;
    return [offset, offset];
  }

  /** Map an offset in the user's text to one in the form; that of a dropped character, to the next character. */
  offset(sourceOffset) {
    return this.spans ? lastUpTo(this.starts, sourceOffset - 1) + 1 : sourceOffset;
  }

  /** Return what the user wrote there, without invisible characters. */
  sourceText(span) {
    return this.source.slice(...this.sourceSpan(span)).replace(ALL_INVISIBLE, "");
  }
}

/** What a normal form needs to know about a tokenizer: which characters and words it has; with a cache. */
export class Vocabulary {
  /** `unknown`: the token of characters that it lacks; `special`: tokens without text. */
  constructor(tokenizer, unknown, special) {
    [this.tokenizer, this.unknown, this.special] = [tokenizer, unknown, new Set(special)];
    [this.isCovered, this.isPiece, this.forms, this.logRanks] = [new Map(), new Map(), new Map(), new Map()];
    this.unchanged = new Set(); // characters that are their own form
  }

  /** Whether the vocabulary has the characters of a text, inside a word. */
  covers(text) {
    return cached(this.isCovered, text, () => {
      const probe = `a${text}a`;
      return !unknownTokens(this, probe, this.tokenizer.encode(probe)).size;
    });
  }

  /** Whether a word is one piece of the vocabulary. */
  hasPiece(word) {
    return cached(this.isPiece, word, () => {
      const ids = this.tokenizer.encode(word).ids.filter((token) => !this.special.has(token));
      return ids.length === 1 && ids[0] !== this.unknown;
    });
  }

  /** Whether the vocabulary has a word in its normal form. */
  reads(word) {
    return this.covers(this.normalForm(word).text);
  }

  /**
   * Return how rare a word is: about its negative log-probability, less a constant for each of its tokens.
   *
   * Vocabularies are sorted by frequency, and the frequency of a token falls as 1 / rank (Zipf's law).
   */
  logRank(word) {
    return cached(this.logRanks, word, () => {
      const { ids } = this.tokenizer.encode(this.normalForm(word).text);
      return this.#logRankOf(ids.filter((token) => !this.special.has(token)));
    });
  }

  /** Return how rare a word of the target language is. */
  targetLogRank(word) {
    return this.#logRankOf(this.tokenizer.encodeTarget(word).slice(0, -1));
  }

  #logRankOf(ids) {
    return ids.reduce((sum, token) =>
      sum + (token === this.unknown ? LOG_RANK_OF_UNKNOWN : Math.log(token + FIRST_RANK) + LOG_RANK_OF_TOKEN), 0);
  }

  /** Return a text, in its normal form if the vocabulary lacks any of its characters. */
  knownForm(text) {
    return Array.from(text).every((character) => this.covers(character)) ? text : this.normalForm(text).text;
  }

  /** Return the normal form of a text, in which protected spans stay as they are. */
  normalForm(source, protectedSpans = []) {
    const sequences = this.#sequences(source);
    if (!sequences.size && ASCII.test(source)) return new NormalForm(source);
    const isComposed = source.normalize("NFC") === source;
    if (isComposed && !sequences.size && Array.from(source).every((character) => this.#isUnchanged(character))) {
      return new NormalForm(source);
    }
    let [plain, copiedEnd] = ["", 0];
    const spans = [];
    for (const [protectedStart, protectedEnd] of [...protectedSpans, [source.length, source.length]]) {
      for (const [start, end] of clusters(source, copiedEnd, protectedStart, isComposed, sequences)) {
        const sequence = sequences.get(start);
        const form = sequence?.end === end ? sequence.form : this.#formOf(source, start, end);
        plain += form;
        spans.push(...Array(form.length).fill([start, end]));
      }
      plain += source.slice(protectedStart, protectedEnd);
      for (let unit = protectedStart; unit < protectedEnd; unit++) spans.push([unit, unit + 1]);
      copiedEnd = protectedEnd;
    }
    const text = plain.replace(WORD, (word, offset) =>
      this.#lowercased(word, plain.slice(Math.max(offset - WORD_REACH, 0), offset)));
    return text === source ? new NormalForm(source) : new NormalForm(source, text, spans);
  }

  #isUnchanged(character) {
    return ASCII.test(character) || this.unchanged.has(character);
  }

  /** Return the ends and the forms of entities and sequences of characters by their starts: see normal.py. */
  #sequences(source) {
    const sequences = new Map(entitiesOf(source).map(([start, end, character]) =>
      [start, { end, form: this.#formOf(source, start, end, character) }]));
    const arrows = arrowsIn(source);
    for (const { 0: { length }, index, groups: { quote, inner, dash, guillemet, escaped, comma } } of source.matchAll(SEQUENCES)) {
      // the model knows guillemets; German »quotes« do not have spaces inside
      if (inner && (!/^[^»]*«/.test(source) || this.covers("«"))) continue;
      if (guillemet && !arrows.has(index)) continue;
      if (comma && BEFORE_CODE_COMMA.test(source.slice(Math.max(index - MAX_CODE, 0), index))) continue;
      let form = "";
      if (quote) form = '"';
      else if (escaped) form = escaped[1];
      else if (guillemet) form = guillemet;
      else if (comma) form = ", ";
      else if (dash) form = /\s/.test(source[index - 1]) ? "-" : " - ";
      sequences.set(index, { end: index + length, form });
    }
    this.#addFurtherSequences(source, sequences);
    return sequences;
  }

  #addFurtherSequences(source, sequences) {
    let awaited = ""; // the mark that closes the one that is open
    for (const { 0: mark, index, groups: { opening, closing, bracket, divided, letter } } of source.matchAll(FURTHER_SEQUENCES)) {
      const end = index + mark.length;
      let form = "";
      if (opening || (closing && mark === awaited)) {
        form = mark === " " ? "" : '"';
        awaited = opening ? opening.replace("<<", ">>") : "";
      } else if (closing || (divided && !this.#isDivided(source, index, end))) form = mark;
      else if (bracket) form = " (";
      else if (letter) form = this.#withoutRepeats(source, index, end);
      sequences.set(index, { end, form });
    }
  }

  /** Whether a hyphen and a space divide a word, as in "docu- ment", but not in "pre- and post-war". */
  #isDivided(source, start, end) {
    const [left, right] = wordAround(source, start, end);
    return this.logRank(left + right) < this.logRank(left) + this.logRank(right) - MARGIN_OF_DIVIDED;
  }

  /** Return a letter once or twice instead of more often, whichever makes the more frequent word. */
  #withoutRepeats(source, start, end) {
    const [left, right] = wordAround(source, start, end);
    const letters = source.slice(start, end);
    const isRoman = ROMAN_WORD.test(left + letters + right);
    const isAcronym = !letters[3] && letters < "a"; // "IEEE"
    // "&#xfffe;", the same letter alone
    if (source[start - left.length - 1] === "#" || isRoman || isAcronym || !/^\p{L}+$/u.test(left + right)) return letters;
    const [before, after] = [left, right].map((part) => part.replace(REPEATED, "$1"));
    const rankOf = (form) => this.logRank(`${before}${form}${after}`.toLowerCase());
    const [once, twice] = [letters[0], letters.slice(0, 2)];
    const form = rankOf(twice) < rankOf(once) ? twice : once;
    const mayBeCompound = !letters[3] && left && right; // of German: "Missstand"
    return mayBeCompound && rankOf(form) > MAX_RANK_OF_REPEATED ? letters : form;
  }

  #formOf(source, start, end, cluster = source.slice(start, end)) {
    if (ASCII.test(cluster)) return cluster;
    const betweenLetters = BETWEEN_LETTERS[cluster];
    const isDash = betweenLetters?.[1];
    if (betweenLetters !== undefined && !(isDash && this.covers(cluster))) {
      const neighbours = source.slice(Math.max(start - 1, 0), start) + source.slice(end, end + 1);
      if (TWO_LETTERS.test(neighbours)) return betweenLetters;
      if (!isDash) return cluster;
    }
    return cached(this.forms, cluster, () => {
      const form = this.#plain(cluster);
      if (form === cluster && ![...cluster][1] && this.covers(cluster)) this.unchanged.add(cluster);
      return form;
    });
  }

  #plain(cluster) {
    const visible = cluster.replace(ALL_INVISIBLE, "");
    const composed = visible.normalize("NFC");
    const alike = composed.replace(COMPATIBLE, (character) => character.normalize("NFKC"));
    const plain = inPlainForms(alike);
    const candidates = [...visible][1] ? [composed, visible] : [visible, composed];
    return [...candidates, alike, plain].find((form) => this.covers(form)) ?? candidates[0];
  }

  /** Return a capitalised word that the vocabulary lacks as it has it: in lowercase or without accents. */
  #lowercased(word, context) {
    const letters = Array.from(word);
    if (letters.every((letter) => this.#isUnchanged(letter)) || this.covers(word) || !/^\p{Lu}/u.test(word)) return word;
    const lowered = letters[0].toLowerCase() + letters.slice(1).join("");
    const unaccented = letters
      .map((letter) => (this.covers(letter) ? letter : Array.from(letter.normalize("NFD"))[0]))
      .join("");
    const isKnown = (form) => this.hasPiece(form) || (SENTENCE_START.test(context) && form === lowered && this.covers(form));
    return [lowered, word.toLowerCase(), letters[1] ? unaccented : word]
      .find((form) => form.length === word.length && isKnown(form)) ?? word;
  }
}

/**
 * Return the offsets of guillemets that are arrows: of lines with only one of a pair, between spaces or, if there is one, at the
 * line's edge, where it points outwards. Beside a mark, it closes a quote of several lines.
 */
function arrowsIn(source) {
  const arrows = new Set();
  if (!/[«»‹›]/.test(source)) return arrows;
  for (const { 0: line, index: lineStart } of source.matchAll(/[^\n]+/g)) {
    for (const [sign, partner] of ["«»", "»«", "‹›", "›‹"]) {
      if (!line.includes(sign) || line.includes(partner)) continue;
      const outwards = line.indexOf(sign) === line.lastIndexOf(sign) ? ("«‹".includes(sign) ? `|^${sign}` : `|${sign}\\s*$`) : "";
      const isArrow = `(?<![.,!?])(?:(?<!\\S)${sign}(?!\\S)${outwards})(?![.,!?])`;
      for (const { index } of line.matchAll(new RegExp(isArrow, "gu"))) arrows.add(lineStart + index);
    }
  }
  return arrows;
}

/** Return the parts of a word before and after a span inside it, up to `MAX_CACHED_LENGTH` characters of each. */
const wordAround = (source, start, end) => [
  /[\p{L}\p{N}_]*$/u.exec(source.slice(Math.max(start - MAX_CACHED_LENGTH, 0), start))[0],
  /^[\p{L}\p{N}_]*/u.exec(source.slice(end, end + MAX_CACHED_LENGTH))[0],
];
const inPlainForms = (text) => Array.from(text, (character) => PLAIN_FORMS.get(character) ?? character).join("");
const plainRead = (text) => inPlainForms(text).normalize("NFKC"); // as a tokenizer reads it whose vocabulary lacks its signs

/** Return a translation with words such as "CO₂" as its source has them, if it copies their plain form: see normal.py. */
export function withSourceCharacters(translation, source) {
  return (source.match(PLAIN_READ_WORD) ?? []).reduce((text, word) => {
    const plain = plainRead(word);
    const parts = text.split(plain);
    const marked = parts.join("\0");
    return plainRead(source).split(plain).length === parts.length &&
      source.split(word).length === parts.length &&
      !/[\p{L}\p{N}]\0|\0[\p{L}\p{N}]/u.test(marked) &&
      (/\P{L}|.\p{Lu}$/u.test(plain) || /\d\s?\0|\0\s?\d/.test(marked))
      ? parts.join(word) : text;
  }, translation);
}

/** Return a text in lowercase with plain quotes, character for character. */
export function inPlainLetters(text) {
  return Array.from(text, (character) => {
    const lowered = (PLAIN_FORMS.get(character) ?? character).toLowerCase();
    return lowered.length === character.length ? lowered : character;
  }).join("");
}

/** Return the tokens that stand for what the vocabulary lacks: unknown ones, and single bytes of characters. */
export function unknownTokens({ tokenizer, unknown }, text, { ids, offsets }) {
  const isBroken = (token) => tokenizer.decode([ids[token]]).includes("\ufffd");
  return new Set(ids.flatMap((id, token) => {
    const [span, nextSpan] = [offsets[token], offsets[token + 1]];
    const areBytes = span && nextSpan && span.join() === nextSpan.join() && Array.from(text.slice(...span).normalize("NFC")).length === 1;
    return [...(id === unknown ? [token] : []), ...(areBytes ? [token, token + 1].filter(isBroken) : [])];
  }));
}

function cached(answers, text, compute) {
  if (text.length > MAX_CACHED_LENGTH) return compute();
  if (!answers.has(text)) {
    const answer = compute();
    if (answers.size >= MAX_ANSWERS) answers.clear();
    answers.set(text, answer);
  }
  return answers.get(text);
}

/** Return the spans of characters, entities and sequences, each with the marks that follow it unless the text is composed. */
function clusters(text, spanStart, spanEnd, isComposed, sequences) {
  const spans = [];
  let end = spanStart;
  while (end < spanEnd) {
    const [start, character] = [end, String.fromCodePoint(text.codePointAt(end))];
    end += character.length;
    if (!isComposed && spans.length && EXTENDS.test(character)) spans.at(-1)[1] = end;
    else {
      const sequence = sequences.get(start);
      if (sequence?.end <= spanEnd) ({ end } = sequence);
      spans.push([start, end]);
    }
  }
  return spans;
}
