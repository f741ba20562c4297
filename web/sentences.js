// Where a text may be cut: into sentences, and a sentence that is too long into pieces. It follows text/sentences.py.

import {
  BEFORE_NUMBERS, BULLETS, CLAUSE_ENDS_PATTERN, CLOSING, GOES_ON_PATTERN, INITIALS_PATTERN, LINES_PATTERN,
  LONGEST_CHARACTER, MIN_LAST_WORD, OPENING, QUOTED_PATTERN, ROMAN_NUMERAL_PATTERN, SENTENCE_ENDS_PATTERN, SENTENCE_REACH,
  SPACED_CLOSING, UNSPACED_END_PATTERN, UNSPACED_STOPS,
} from "./interface.js";
import { escaped, regex } from "./patterns.js";
import { firstOf, isLower } from "./words.js";

const LINES = regex(LINES_PATTERN, "gu");
const CLAUSE_ENDS = regex(CLAUSE_ENDS_PATTERN, "gu");
const QUOTED = regex(QUOTED_PATTERN, "gu");
const GOES_ON = regex(`^${GOES_ON_PATTERN}`);
const ROMAN_NUMERAL = regex(`^${ROMAN_NUMERAL_PATTERN}$`);
const INITIALS = regex(`^${INITIALS_PATTERN}$`);
const SPACES = /\s+/g;
const LEADING = new RegExp(`^[${escaped(OPENING + BULLETS)}]+`);
const BEFORE_WORD = new RegExp(`^[${escaped(`${OPENING} `)}]+`);
const AROUND_ITEM = new RegExp(`^[${escaped(BULLETS)}]+|[${escaped(BULLETS)}]+$`, "g");
const CLOSINGS = new RegExp(`[${escaped(SPACED_CLOSING)}]`);

/** Return the spans [start, end] of the sentences of a text; `rules`: from a model file. */
export function splitSentences(text, rules) {
  const further = rules.stops ? `|[${escaped(rules.stops)}](?=[\\s])` : "";
  const ends = regex(SENTENCE_ENDS_PATTERN + further + (rules.has_lowercase_starts ? `|${UNSPACED_END_PATTERN}` : ""), "gu");
  const sets = { ...rules };
  for (const name of ["abbreviations", "final_abbreviations", "starters"]) sets[name] = new Set(rules[name]);
  const spans = [];
  for (const { 0: line, index: first } of text.matchAll(LINES)) {
    let [start, end] = [first, first + line.length];
    for (const cut of endsOf(line, ends, sets)) {
      spans.push([start, first + cut]);
      start = first + cut;
    }
    spans.push([start, end]);
  }
  return spans.map((span) => stripped(text, span)).filter(([start, end]) => start < end);
}

/** Return where sentences of a line end, but for the last one. */
function endsOf(line, ends, rules) {
  const cuts = [];
  let [start, quotes, quoteIndex] = [0, null, 0];
  for (const match of line.matchAll(ends)) {
    const after = match.index + match[0].length;
    if (after === line.length || !endsSentence(line, start, match.index, match[0], rules)) continue;
    quotes ??= Array.from(line.matchAll(QUOTED), ({ 0: quote, index }) => [index, index + quote.length]);
    while (quotes[quoteIndex]?.[1] <= after) quoteIndex++;
    if (quotes[quoteIndex]?.[0] < after) continue;
    start = after;
    cuts.push(after);
  }
  return cuts;
}

function endsSentence(text, start, offset, stop, rules) {
  const after = offset + stop.length;
  if (UNSPACED_STOPS.includes(stop[0])) return !(CLOSING.includes(stop.at(-1)) && GOES_ON.test(text.slice(after)));
  if (rules.stops.includes(stop)) return true;
  if ("[(".includes(text[offset - 1] ?? " ")) return false; // "[...]"
  const following = text.slice(after, after + SENTENCE_REACH).trimStart();
  const nextWord = following.replace(BEFORE_WORD, "");
  if (nextWord[0] === ",") return false; // German ",,"
  const mark = stop.split(CLOSINGS, 1)[0];
  const before = text.slice(Math.max(start, offset - SENTENCE_REACH), offset);
  const words = before.trimEnd().split(/\s+/);
  const written = words.at(-1).replace(LEADING, "");
  if (isLower(firstOf(nextWord))) { // "etc. and so on", "Yahoo! is", "- Come! - he said"
    const isLong = written.length >= MIN_LAST_WORD && !written.includes(".") && mark !== "…";
    return rules.has_lowercase_starts && !"-–—".includes(following[0]) && (isLong || "!?".includes(mark[0]));
  }
  if (mark !== ".") return true;
  const lastWord = written.toLowerCase();
  if (lastWord === "") return words.at(-1) !== "" && CLOSING.includes(words.at(-1).at(-1)); // French "« oui »."
  if (/^\p{Nd}+$/u.test(lastWord)) {
    const isFirst = before.replace(AROUND_ITEM, "") === written;
    return !isFirst && !(rules.has_ordinals && lastWord.length <= 2);
  }
  if (rules.has_ordinals && ROMAN_NUMERAL.test(written)) return false;
  if (BEFORE_NUMBERS.split(" ").includes(lastWord) && /^\p{Nd}/u.test(nextWord)) return false;
  return !isAbbreviation(lastWord, nextWord, rules);
}

/** Whether the full stop after a word belongs to it, and does not end a sentence, too. */
function isAbbreviation(word, nextWord, rules) {
  const words = [word, word.split(/['’(]/).at(-1)]; // "l'Avv."
  if (words.some((form) => rules.abbreviations.has(form))) return true;
  const isInitial = /^\p{L}$/u.test(word); // "J. S. Bach"
  if (!words.some((form) => rules.final_abbreviations.has(form)) && (isInitial || !INITIALS.test(word))) return isInitial;
  return !rules.starters.has(/^\p{L}*/u.exec(nextWord)[0].toLowerCase());
}

/** Cut a span until each piece fits: after a comma or the like, else at a space, else anywhere, near the middle. */
export function splitToFit(text, span, fits) {
  const pieces = [];
  const pending = [stripped(text, span)];
  while (pending.length) {
    const [start, end] = pending.pop();
    if (end - start <= 1 || fits([start, end])) {
      pieces.push([start, end]);
      continue;
    }
    const cut = bestCut(text, start, end);
    pending.push(...[[cut, end], [start, cut]].map((half) => stripped(text, half)).filter(([halfStart, halfEnd]) => halfStart < halfEnd));
  }
  return pieces;
}

function bestCut(text, start, end) {
  const middle = (start + end) >> 1;
  const quarter = (end - start) >> 2;
  for (const [pattern, reach] of [[CLAUSE_ENDS, quarter], [SPACES, quarter], [SPACES, 2 * quarter]]) {
    const [low, high] = [Math.max(start + 1, middle - reach), Math.min(end - 1, middle + reach)];
    const offsets = [...text.slice(start, high).matchAll(pattern)]
      .filter((match) => start + match.index >= low)
      .map((match) => start + match.index + match[0].length)
      .filter((offset) => start < offset && offset < end);
    if (offsets.length) return offsets.reduce((nearest, offset) => (Math.abs(offset - middle) < Math.abs(nearest - middle) ? offset : nearest));
  }
  const first = Math.max(middle, start + 1);
  for (let offset = first; offset < Math.min(first + LONGEST_CHARACTER, end); offset++) {
    if (!continuesACharacter(text, offset)) return offset;
  }
  for (let offset = first - 1; offset > Math.max(first - LONGEST_CHARACTER, start); offset--) {
    if (!continuesACharacter(text, offset)) return offset;
  }
  return first; // a longer run of marks is not a character that anybody reads
}

/** Whether the code unit at an offset belongs to the character before: accents, parts of an emoji, low surrogates. */
function continuesACharacter(text, offset) {
  const [previous, codePoint] = [text[offset - 1], String.fromCodePoint(text.codePointAt(offset))];
  return /[\p{M}\u200d\udc00-\udfff]/u.test(codePoint) || previous === "\u200d";
}

export function stripped(text, [start, end]) {
  const piece = text.slice(start, end);
  return [start + piece.length - piece.trimStart().length, end - (piece.length - piece.trimEnd().length)];
}
