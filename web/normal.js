// The normal form of a text: what the model should see, and the way back to the characters of the user's text.
//
// The same as capsule_mt/text/normal.py; tests/vectors/normal.json holds for both. Places are those of JavaScript's strings.

import {
  FIRST_RANK, INVISIBLE, JOINERS, LAST_WITHOUT_JOINERS, LOG_RANK_OF_TOKEN, LOG_RANK_OF_UNKNOWN, PATTERNS, PLAIN, WORD_REACH,
} from "./interface.js";

const PLAIN_FORMS = new Map(Object.entries(PLAIN).flatMap(([plain, all]) => Array.from(all, (one) => [one, plain])));
const COMPATIBLE = new RegExp(`^${PATTERNS.COMPATIBLE}`, "u");
const WORD = new RegExp(PATTERNS.WORD, "gu");
const BEGINS = new RegExp(PATTERNS.WORD_BEGINS, "u");
const ALL_INVISIBLE = new RegExp(`[${INVISIBLE}]`, "gu");
export const EXTENDS = /^[\p{M}\u1160-\u11ff]/u; // may be composed with the character before
const ASCII = /^[\0-\x7f]*$/;
const [MOST_ANSWERS, LONGEST_KEPT] = [20000, 64]; // that are kept, of texts of so many characters

export class NormalForm {
  /** `spans`: of each character of the form, those of the user's text that it stands for; null where both are the same. */
  constructor(source, text = source, spans = null) {
    [this.source, this.text, this.spans] = [source, text, spans];
  }

  /** Return the characters of the user's text behind some of the form. */
  sourceSpan([start, end]) {
    if (!this.spans) return [start, end];
    if (start < end) return [this.spans[start][0], this.spans[end - 1][1]];
    const at = start < this.spans.length ? this.spans[start][0] : this.source.length;
    return [at, at];
  }

  /** Return the first character of the form that is not before a character of the user's text. */
  offset(sourceOffset) {
    if (!this.spans) return sourceOffset;
    let [low, high] = [0, this.spans.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.spans[middle][0] < sourceOffset) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  /** Return what the user wrote, but for invisible characters. */
  sourceText(span) {
    return this.source.slice(...this.sourceSpan(span)).replace(ALL_INVISIBLE, "");
  }
}

/** What normal forms ask of a tokenizer. Its answers are kept. */
export class Vocabulary {
  /** `unknown`: the token of what it lacks; `special`: tokens without text. */
  constructor(tokenizer, unknown, special) {
    [this.tokenizer, this.unknown, this.special] = [tokenizer, unknown, new Set(special)];
    [this.known, this.pieces, this.forms, this.logRanks] = [new Map(), new Map(), new Map(), new Map()];
    this.unchanged = new Set(); // characters that are their own form
  }

  /** Whether the vocabulary has the characters of a text, inside of a word. */
  has(text) {
    return kept(this.known, text, () => {
      const probe = `a${text}a`;
      return !unknownTokens(this, probe, this.tokenizer.encode(probe)).size;
    });
  }

  /** Whether a word is one piece of the vocabulary. */
  hasPiece(word) {
    return kept(this.pieces, word, () => {
      const ids = this.tokenizer.encode(word).ids.filter((token) => !this.special.has(token));
      return ids.length === 1 && ids[0] !== this.unknown;
    });
  }

  /** Whether the vocabulary has a word in its normal form. */
  reads(word) {
    return this.has(this.normalForm(word).text);
  }

  /**
   * Return how rare a word is: about its negative log-probability, less a constant for each of its tokens.
   *
   * Vocabularies are sorted by frequency, and the frequency of a token falls as 1 / rank (Zipf's law).
   */
  logRank(word) {
    return kept(this.logRanks, word, () => {
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

  /** Return the normal form of a text, in which protected spans stay as they are. */
  normalForm(source, protectedSpans = []) {
    if (ASCII.test(source)) return new NormalForm(source);
    const isComposed = source.normalize("NFC") === source;
    if (isComposed && Array.from(source).every((one) => this.#isUnchanged(one))) return new NormalForm(source);
    let [plain, last] = ["", 0];
    const spans = [];
    for (const [first, next] of [...protectedSpans, [source.length, source.length]]) {
      for (const [start, end] of clusters(source, last, first, isComposed)) {
        const form = this.#formOf(source, start, end);
        plain += form;
        for (let unit = 0; unit < form.length; unit++) spans.push([start, end]);
      }
      plain += source.slice(first, next);
      for (let unit = first; unit < next; unit++) spans.push([unit, unit + 1]);
      last = next;
    }
    const text = plain.replace(WORD, (word, at) => this.#inSmallLetters(word, plain.slice(Math.max(at - WORD_REACH, 0), at)));
    return text === source ? new NormalForm(source) : new NormalForm(source, text, spans);
  }

  #isUnchanged(character) {
    return ASCII.test(character) || this.unchanged.has(character);
  }

  #formOf(source, start, end) {
    const cluster = source.slice(start, end);
    if (ASCII.test(cluster)) return cluster;
    if (JOINERS.includes(cluster)) {
      const around = source.slice(Math.max(start - 1, 0), start) + source.slice(end, end + 1);
      const isBetween = /^\p{L}{2}$/u.test(around) && Array.from(around).every((one) => one <= LAST_WITHOUT_JOINERS);
      return isBetween ? "" : cluster;
    }
    return kept(this.forms, cluster, () => {
      const form = this.#plain(cluster);
      if (form === cluster && Array.from(cluster).length === 1 && this.has(cluster)) this.unchanged.add(cluster);
      return form;
    });
  }

  #plain(cluster) {
    const visible = cluster.replace(ALL_INVISIBLE, "");
    const composed = visible.normalize("NFC");
    const alike = Array.from(composed, (one) => (COMPATIBLE.test(one) ? one.normalize("NFKC") : one)).join("");
    const plain = Array.from(alike, (one) => PLAIN_FORMS.get(one) ?? one).join("");
    const candidates = Array.from(visible).length === 1 ? [visible, composed] : [composed, visible];
    return [...candidates, alike, plain].find((form) => this.has(form)) ?? candidates[0];
  }

  /** Return a word that the vocabulary lacks as it has it: without a capital, or without an accent. */
  #inSmallLetters(word, before) {
    const letters = Array.from(word);
    if (letters.every((one) => this.#isUnchanged(one)) || this.has(word) || !/^\p{Lu}/u.test(word)) return word;
    const small = letters[0].toLowerCase() + letters.slice(1).join("");
    const bare = letters.map((letter) => (this.has(letter) ? letter : Array.from(letter.normalize("NFD"))[0])).join("");
    const isKnown = (form) => this.hasPiece(form) || (BEGINS.test(before) && form === small && this.has(form));
    return [small, word.toLowerCase(), bare].find((form) => form.length === word.length && isKnown(form)) ?? word;
  }
}

/** Return a text in small letters with plain quotes, character for character. */
export function inPlainLetters(text) {
  return Array.from(text, (character) => {
    const small = (PLAIN_FORMS.get(character) ?? character).toLowerCase();
    return small.length === character.length ? small : character;
  }).join("");
}

/** Return which tokens of a text stand for what the vocabulary lacks: unknown ones, or a byte of a character. */
export function unknownTokens({ tokenizer, unknown }, text, { ids, offsets }) {
  const isBroken = (token) => tokenizer.decode([ids[token]]).includes("\ufffd");
  return new Set(ids.flatMap((id, token) => {
    const [span, other] = [offsets[token], offsets[token + 1]];
    const areBytes = span && other && span.join() === other.join() && Array.from(text.slice(...span).normalize("NFC")).length === 1;
    return [...(id === unknown ? [token] : []), ...(areBytes ? [token, token + 1].filter(isBroken) : [])];
  }));
}

function kept(answers, text, find) {
  if (text.length > LONGEST_KEPT) return find();
  if (!answers.has(text)) {
    const answer = find();
    if (answers.size >= MOST_ANSWERS) answers.clear();
    answers.set(text, answer);
  }
  return answers.get(text);
}

/** Return the characters of a part of a text, each with the marks after it where some are not composed with it. */
function clusters(text, first, last, isComposed) {
  const found = [];
  let start = first;
  for (const character of text.slice(first, last)) {
    const end = start + character.length;
    if (!isComposed && found.length && EXTENDS.test(character)) found.at(-1)[1] = end;
    else found.push([start, end]);
    start = end;
  }
  return found;
}
