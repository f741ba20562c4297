// What a translation has as its source does (URLs, tags, placeholders, code, emoji), and texts in capitals.
//
// It follows text/copying.py, text/keeping.py and text/capitals.py.

import { KEPT_PATTERNS, MAYBE_NO_WORDS, MIN_CAPITALS, PATTERNS } from "./interface.js";
import { WORDS } from "./words.js";

const KINDS = Object.keys(KEPT_PATTERNS);
const ITEMS = new RegExp(KINDS.map((kind) => `(?<${kind}>${KEPT_PATTERNS[kind]})`).join("|"), "gu");
const { tags, urls, placeholders, code } = KEPT_PATTERNS;
const NO_WORDS = new RegExp(`${urls}|${tags}|${placeholders}|${code}`, "gu");
const EMOJI = new RegExp(PATTERNS.EMOJI, "u");
const EDGES = [PATTERNS.LIST_MARK, PATTERNS.EMOJI_BEFORE].map((pattern) => new RegExp(pattern, "uy"));
const CAPITAL_BEGINS = new RegExp(PATTERNS.CAPITAL_BEGINS, "gu");
const LETTER = /\p{L}/u;

const mayHaveNoWords = (text) => MAYBE_NO_WORDS.some((sign) => text.includes(sign));
const isUpper = (text) => /\p{Uppercase}/u.test(text) && !/[\p{Lowercase}\p{Lt}]/u.test(text);

/** Return the parts of a text that its translation has as they are, by their kinds. */
export function itemsOf(text) {
  if (!mayHaveNoWords(text) && !EMOJI.test(text)) return [];
  return Array.from(text.matchAll(ITEMS), ({ 0: item, index, groups }) =>
    ({ text: item, start: index, end: index + item.length, kind: KINDS.find((kind) => groups[kind] !== undefined) }));
}

/** Return a text with other text for what is outside of its items, or for the items. */
function withItems(text, change, changeItem = (item) => item) {
  let [written, last] = ["", 0];
  for (const item of itemsOf(text)) {
    written += change(text.slice(last, item.start)) + changeItem(item.text);
    last = item.end;
  }
  return written + change(text.slice(last));
}

/** Whether a text has nothing to translate: no letters outside of URLs, tags, placeholders and code. */
function hasNoWords(text) {
  return !LETTER.test(text) || (mayHaveNoWords(text) && !LETTER.test(text.replace(NO_WORDS, " ")));
}

/** Return the part of a sentence that is translated, without the bullets and emoji around it; empty if there is none. */
export function withoutCopiedEdges(text, [start, end]) {
  const sentence = text.slice(0, end);
  if (hasNoWords(text.slice(start, end))) return [start, start];
  if (!/^\p{L}{2}$/u.test(text.slice(start, start + 2))) {
    for (const pattern of EDGES) {
      pattern.lastIndex = start;
      start += pattern.exec(sentence)?.[0].length ?? 0;
    }
  }
  const characters = Array.from(text.slice(start, end));
  if (characters.at(-1) > "\u1fff" && EMOJI.test(characters.at(-1))) {
    while (/\s/.test(characters.at(-1)) || EMOJI.test(characters.at(-1))) end -= characters.pop().length;
  }
  return [start, end];
}

/** Return a text in capitals as it is else written, letter for letter; null for any other text. */
export function withoutCapitals(text) {
  const numCapitals = text.match(/\p{Uppercase}/gu)?.length ?? 0;
  if (!isUpper(text) && !(mayHaveNoWords(text) && numCapitals >= MIN_CAPITALS)) return null;
  const shadow = withItems(text, (part) => part, (item) => " ".repeat(item.length));
  const words = (shadow.match(WORDS) ?? []).filter((word) => /^\p{L}+$/u.test(word)).join("");
  if (Array.from(words).length < MIN_CAPITALS || !isUpper(words)) return null;
  let small = withItems(text, (part) => part.toLowerCase());
  if (small.length !== text.length) return null;
  for (const match of shadow.matchAll(CAPITAL_BEGINS)) { // of sentences, whose first letters stay
    const [end, letter] = [match.index + match[0].length, Array.from(match[0]).at(-1)];
    small = small.slice(0, end - letter.length) + letter + small.slice(end);
  }
  return small;
}

/** Return a translation in capitals, letter for letter, but for what is kept. */
export function withCapitals(text) {
  return withItems(text, (part) => Array.from(part, capital).join(""));
}

function capital(letter) {
  if (letter === "ß") return "ẞ";
  const upper = letter.toUpperCase();
  return Array.from(upper).length === 1 ? upper : letter;
}
