// What a translation has as its source does: URLs, tags, placeholders, code, emoji, marks of emphasis.
//
// It follows text/copying.py and text/keeping.py.

import { KEPT_KINDS, KEPT_PATTERNS, PATTERNS, SIGN_PAIRS } from "./interface.js";

const patternOfKinds = (kinds) => new RegExp(kinds.map((kind) => `(?<${kind}>${KEPT_PATTERNS[kind]})`).join("|"), "gu");
export const ITEMS = patternOfKinds(Object.keys(KEPT_PATTERNS));
export const CHECKED_ITEMS = patternOfKinds(KEPT_KINDS);
export const TAGS = patternOfKinds(["tags"]);
const NON_WORDS = patternOfKinds(["urls", "tags", "placeholders", "breaks", "code", "names"]);
const EMOJI = new RegExp(PATTERNS.EMOJI, "u");
const EMOJI_OR_SIGNS = new RegExp(`${PATTERNS.EMOJI}|${KEPT_PATTERNS.numerals}|${KEPT_PATTERNS.signs}`, "u");
const EDGES = [PATTERNS.LIST_MARK, PATTERNS.FURTHER_LIST_MARK, PATTERNS.EMOJI_BEFORE, PATTERNS.NUMBERED].map((pattern) => new RegExp(pattern, "uy"));
const [LEADER, SIGNS_AT_END] = [PATTERNS.LEADER, PATTERNS.SIGNS_AT_END].map((pattern) => new RegExp(pattern, "u"));
const LETTER = /\p{L}/u;

const NON_WORD_SIGNS = new RegExp(PATTERNS.NON_WORD_SIGNS, "u");
export const mayHaveNonWords = (text) => NON_WORD_SIGNS.test(text);

/** Return the parts of a text that its translation has as they are, by their kinds. */
export function itemsOf(text, pattern = ITEMS) {
  if (!mayHaveNonWords(text) && !EMOJI_OR_SIGNS.test(text)) return [];
  return Array.from(text.matchAll(pattern)).flatMap(({ 0: item, index, groups }) => {
    const kind = Object.keys(groups).find((name) => groups[name] !== undefined);
    return kind === "emphasis" ? emphasised(item, index) : [{ text: item, start: index, end: index + item.length, kind }];
  });
}

/** Return the marks around an emphasised text, and the items in it; a blank to fill in, such as "____", is a sign. */
function emphasised(text, start) {
  const length = Math.min(...[/^(.)\1*/, /([*_~])\1*$/].map((run) => run.exec(text)[0].length));
  const end = start + text.length;
  if (length === text.length) return [{ text, start, end, kind: "signs" }];
  const mark = { text: text.slice(0, length), kind: "emphasis" };
  const inner = itemsOf(text.slice(length, -length)).map((item) => (
    { ...item, start: start + length + item.start, end: start + length + item.end }));
  return [{ ...mark, start, end: start + length }, ...inner, { ...mark, start: end - length, end }];
}

/** Return a text with other text for what is outside of its items, or for the items. */
export function withItems(text, change, changeItem = (item) => item, pattern = ITEMS) {
  let [output, lastEnd] = ["", 0];
  for (const item of itemsOf(text, pattern)) {
    output += change(text.slice(lastEnd, item.start)) + changeItem(item.text, item.kind);
    lastEnd = item.end;
  }
  return output + change(text.slice(lastEnd));
}

/** Return a text with a character instead of each one in its items. */
export const withoutItems = (text, character) => withItems(text, (part) => part, (item) => character.repeat(item.length));

/** Whether a text has nothing to translate: no letters outside of URLs, tags, placeholders and code. */
export function lacksWords(text) {
  return !LETTER.test(mayHaveNonWords(text) ? text.replace(NON_WORDS, " ") : text);
}

/**
 * Return the part of a sentence that is translated, without the list marks and emoji around it; empty if there is none.
 *
 * `hasOrdinals`: the language writes ordinal numbers with a full stop, so "3." may belong to the sentence.
 */
export function withoutCopiedEdges(text, [start, end], hasOrdinals) {
  const sentence = text.slice(0, end);
  if (lacksWords(text.slice(start, end))) return [start, start];
  if (!/^\p{L}{2}$/u.test(text.slice(start, start + 2))) {
    for (const pattern of EDGES.slice(0, hasOrdinals ? 3 : 4)) {
      pattern.lastIndex = start;
      const [mark] = pattern.exec(sentence) ?? [""];
      if (!hasPair(mark, text.slice(start, end))) start += mark.length;
    }
  }
  const [signs] = (end - start > 1 && SIGNS_AT_END.exec(text.slice(start, end))) || [""];
  if (!hasPair(signs, text.slice(start, end))) end -= signs.length;
  const leader = LEADER.exec(text.slice(start, end));
  if (leader) end = start + leader.index;
  const characters = Array.from(text.slice(start, end));
  if (characters.at(-1) > "\u1fff" && EMOJI.test(characters.at(-1))) {
    while (/\s/.test(characters.at(-1)) || EMOJI.test(characters.at(-1))) end -= characters.pop().length;
  }
  return [start, end];
}

/** Whether some of the signs may be one of a pair of brackets or quotes in the sentence. */
function hasPair(signs, sentence) {
  return SIGN_PAIRS.some((pair) => [...pair].some((sign) => signs.includes(sign)) && [...pair].every((sign) => sentence.includes(sign)));
}
