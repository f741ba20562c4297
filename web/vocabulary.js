// What rules ask about a tokenizer's vocabulary: which characters and words it has, and how rare a word is. It follows
// text/vocabulary.py.

import { BREAK, COMPATIBLE_PATTERN, FIRST_RANK, INVISIBLE, ITEM, LOG_RANK_OF_TOKEN, LOG_RANK_OF_UNKNOWN, PLAIN } from "./interface.js";
import { regex } from "./patterns.js";

const PLAIN_FORMS = new Map(Object.entries(PLAIN).flatMap(([plain, variants]) => Array.from(variants, (variant) => [variant, plain])));
const COMPATIBLE = regex(COMPATIBLE_PATTERN, "gu");
const ALL_INVISIBLE = new RegExp(`[${INVISIBLE}]`, "gu");
const MAX_ANSWERS = 20000; // in a cache
export const MAX_CACHED_LENGTH = 64; // characters of a text whose answer is cached
// every vocabulary of a language in Latin letters has these; of others, their tokens tell
const NEVER_LACKED = new RegExp(`[\\s${ITEM}${BREAK}.,!?'"\\-a-zA-Z\\d]`, "u");
/** Whether a character may be composed with the one before: marks, and vowels and finals of Hangul. */
export const combines = (character) => character > "\u02ff" && /[\p{M}\u1160-\u11ff]/u.test(character);

export const isAscii = (text) => /^[\0-\x7f]*$/.test(text);
/** Return a text without soft hyphens, zero-width spaces and the like. */
export const visible = (text) => text.replace(ALL_INVISIBLE, "");

/** The vocabulary of a tokenizer, with a cache. */
export class Vocabulary {
  /** `unknown`: the token of characters that it lacks; `special`: tokens without text. */
  constructor(tokenizer, unknown, special) {
    [this.tokenizer, this.unknown, this.special] = [tokenizer, unknown, new Set(special)];
    for (const name of ["covers", "hasPiece", "logRank", "form"]) this[name] = cached(this[name].bind(this));
  }

  /** Whether the vocabulary has the characters of a text, inside a word. */
  covers(text) {
    const probe = `a${text}a`;
    return !unknownTokens(this, probe, this.tokenizer.encode(probe)).size;
  }

  /** Return the characters of a text that the vocabulary lacks, without spaces and marks that combine. */
  lacked(text) {
    return new Set(Array.from(new Set(text)).filter((character) => !NEVER_LACKED.test(character) && !combines(character) && !this.covers(character)));
  }

  /** Whether a word is one piece of the vocabulary. */
  hasPiece(word) {
    const ids = this.#textIds(word);
    return ids.length === 1 && ids[0] !== this.unknown;
  }

  /** Whether the vocabulary has a text, each character in its form. */
  reads(text) {
    return this.covers(this.#inForms(text));
  }

  /**
   * Return how rare a word is: about its negative log-probability, less a constant for each of its tokens.
   *
   * Vocabularies are sorted by frequency, and the frequency of a token falls as 1 / rank (Zipf's law).
   */
  logRank(word) {
    return this.#logRankOf(this.#textIds(this.#inForms(word)));
  }

  /** Return how rare a word of the target language is. */
  targetLogRank(word) {
    return this.#logRankOf(this.tokenizer.encodeTarget(word).slice(0, -1));
  }

  #textIds(text) {
    return this.tokenizer.encode(text).ids.filter((token) => !this.special.has(token));
  }

  #inForms(text) {
    return Array.from(text, (character) => this.form(character)).join("");
  }

  #logRankOf(ids) {
    return ids.reduce((sum, token) =>
      sum + (token === this.unknown ? LOG_RANK_OF_UNKNOWN : Math.log(token + FIRST_RANK) + LOG_RANK_OF_TOKEN), 0);
  }

  /** Return the first form of a character with its accents that the vocabulary has, from itself to plain ASCII. */
  form(cluster) {
    if (isAscii(cluster)) return cluster;
    const seen = visible(cluster);
    const composed = seen.normalize("NFC");
    const alike = composed.replace(COMPATIBLE, (character) => character.normalize("NFKC"));
    const plain = Array.from(alike, (character) => PLAIN_FORMS.get(character) ?? character).join("");
    const candidates = [...seen][1] ? [composed, seen] : [seen, composed];
    return [...candidates, alike, plain].find((form) => this.covers(form)) ?? candidates[0];
  }
}

function cached(compute) {
  const answers = new Map();
  return (text) => {
    if (text.length > MAX_CACHED_LENGTH) return compute(text);
    if (!answers.has(text)) {
      const answer = compute(text);
      if (answers.size >= MAX_ANSWERS) answers.clear();
      answers.set(text, answer);
    }
    return answers.get(text);
  };
}

/** Return the tokens that stand for what the vocabulary lacks: unknown ones, and bytes of characters. */
export function unknownTokens({ tokenizer, unknown }, text, { ids, offsets }) {
  const isBroken = (token) => tokenizer.decode([ids[token]]).includes("\ufffd");
  return new Set(ids.flatMap((id, token) => {
    const [span, nextSpan] = [offsets[token], offsets[token + 1]];
    const areBytes = span && nextSpan && span.join() === nextSpan.join() && Array.from(text.slice(...span).normalize("NFC")).length === 1;
    return [...(id === unknown || tokenizer.byteIds.has(id) ? [token] : []), ...(areBytes ? [token, token + 1].filter(isBroken) : [])];
  }));
}

/** Return a text in lowercase with plain quotes, character for character. */
export function inPlainLetters(text) {
  return Array.from(text, (character) => {
    const lowered = (PLAIN_FORMS.get(character) ?? character).toLowerCase();
    return lowered.length === character.length ? lowered : character;
  }).join("");
}
