// The words of a text, and spaces between parts of a translation. It follows text/words.py.

import { CJK_NEIGHBOURS, CJK_PATTERN, MAX_DRIFT, UNSPACED_SCRIPTS_PATTERN, WORDS_PATTERN } from "./interface.js";
import { regex } from "./patterns.js";

export const WORDS = regex(WORDS_PATTERN, "gu");
const UNSPACED_SCRIPTS = regex(UNSPACED_SCRIPTS_PATTERN);
const CJK = regex(`^${CJK_PATTERN}`);
const LEADING_NEIGHBOURS = new RegExp(`^[${CJK_NEIGHBOURS}]+`);
export const isAlphanumeric = (character) => /^[\p{L}\p{N}]/u.test(character);

const NUMBERS_AND_WORDS = regex(`\\p{Nd}+(?:[.,:]\\p{Nd}+)+|${WORDS_PATTERN}`, "gu");

/** Whether all cased letters of a text are capitals, and it has one. */
export const isUpper = (text) => /\p{Uppercase}/u.test(text) && !/[\p{Lowercase}\p{Lt}]/u.test(text);

/** Whether all cased letters of a text are lowercase, and it has one. */
export const isLower = (text) => /\p{Lowercase}/u.test(text) && !/[\p{Uppercase}\p{Lt}]/u.test(text);

export const hasLetters = (text) => /\p{L}/u.test(text);

/** Whether a word has neither letters nor digits. */
export const isMark = (word) => !/[\p{L}\p{N}]/u.test(word);

export const firstOf = (text) => Array.from(text.slice(0, 2))[0] ?? "";
export const lastOf = (text) => Array.from(text.slice(-2)).at(-1) ?? "";

/** Return a word as Python's `casefold` does, as far as word lists need it. */
export const folded = (word) => word.toLowerCase().replaceAll("ß", "ss");

/** Return the spans of the words and marks of a text; a number, such as 1,000.50, is one word. */
export function numbersAndWords(text) {
  return Array.from(text.matchAll(NUMBERS_AND_WORDS), ({ 0: word, index }) => ({ start: index, end: index + word.length }));
}

/** Return the words of a text, each with the indices of its tokens. */
export function wordsOf(text, offsets) {
  let lastEnd = 0;
  const ends = offsets.map((tokenSpan) => (lastEnd = Math.max(lastEnd, tokenSpan?.[1] ?? 0))); // ascending
  const tokensOf = ([start, end]) => {
    const tokens = [];
    for (let token = lastUpTo(ends, start) + 1; token < offsets.length; token++) {
      const tokenSpan = offsets[token];
      if (tokenSpan?.[0] >= end + MAX_DRIFT) break;
      if (tokenSpan && tokenSpan[0] < end && tokenSpan[1] > start) tokens.push(token);
    }
    return tokens;
  };
  return [...text.matchAll(WORDS)].flatMap((match) => {
    const span = [match.index, match.index + match[0].length];
    const tokens = tokensOf(span);
    if (!UNSPACED_SCRIPTS.test(match[0])) return [{ span, tokens }];
    // no spaces show where its words end: each token counts as one
    const parts = new Map(tokens.map((token) => {
      const part = [Math.max(offsets[token][0], span[0]), Math.min(offsets[token][1], span[1])];
      return [part.join(), part];
    }));
    return [...parts.values()].sort((left, right) => left[0] - right[0]).map((part) => ({ span: part, tokens: tokensOf(part) }));
  }).filter(({ tokens }) => tokens.length);
}

/** Return how long a text is without the quotes and dashes at its end; a pattern would search all of the text. */
function lengthBeforeNeighbours(text) {
  let end = text.length;
  while (CJK_NEIGHBOURS.includes(text[end - 1])) end--;
  return end;
}

/** Return the end of a text that decides how a text goes on after it: see `withSpace`. */
export const tailOf = (text) => text.slice(Math.max(lengthBeforeNeighbours(text) - 2, 0));

/** Whether two parts of a text are written without a space between them, as in Chinese and Japanese. */
export function runsOn(text, addition) {
  const [last, first] = [lastOf(text.slice(0, lengthBeforeNeighbours(text))), firstOf(addition.replace(LEADING_NEIGHBOURS, ""))];
  return CJK.test(last) && (!isAlphanumeric(last) || CJK.test(first));
}

/** Join two parts of a translation, with a space where a word of one would else run into a word of the other. */
export function withSpace(text, addition) {
  // unlike a superscript, the first character may begin a word; unlike the escape "\n", the last one may end one
  return isAlphanumeric(lastOf(text)) && text.at(-2) !== "\\" && /^(?!ⁿ)[\p{L}\p{Nd}]/u.test(addition) && !runsOn(text, addition) ? `${text} ${addition}` : text + addition;
}

/** Return the index of the last of ascending numbers that is not above a limit, or -1. */
export function lastUpTo(numbers, limit) {
  let [low, high] = [0, numbers.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (numbers[middle] <= limit) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}
