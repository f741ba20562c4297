// Where a text may be cut: into sentences, and a sentence that is too long into pieces. It follows text/sentences.py.

import {
  BEFORE_NUMBERS, LONGEST_CHARACTER, OPENING, PATTERNS, SENTENCE_REACH, SPACED_CLOSING, UNSPACED_STOPS,
} from "./interface.js";

const LINE_BREAKS = new RegExp(PATTERNS.LINE_BREAKS, "gu");
const CLAUSE_ENDS = new RegExp(PATTERNS.CLAUSE_ENDS, "gu");
const SPACES = /\s+/g;
const escaped = (text) => text.replace(/[\\\]\-^[(){}|/]/g, "\\$&");
const [LEADING, TRAILING] = [new RegExp(`^[${escaped(OPENING)}]+`), new RegExp(`[${escaped(SPACED_CLOSING)}]+$`)];
const isLower = (character) => character !== undefined && /^\p{Ll}/u.test(character);

/** Return the places [start, end] of the sentences of a text; `rules` are those of a model file. */
export function splitSentences(text, rules) {
  const ends = new RegExp(rules.is_greek ? PATTERNS.GREEK_ENDS : PATTERNS.SENTENCE_ENDS, "gu");
  const abbreviations = new Set(rules.abbreviations);
  const spans = [];
  for (const [first, end] of between(LINE_BREAKS, text)) {
    let start = first;
    for (const match of text.slice(first, end).matchAll(ends)) {
      const [at, stop] = [first + match.index, match[0]];
      const after = at + stop.length;
      if (after < end && endsSentence(text.slice(0, end), start, at, stop, abbreviations, rules.has_ordinals)) {
        spans.push([start, after]);
        start = after;
      }
    }
    spans.push([start, end]);
  }
  return spans.map((span) => stripped(text, span)).filter(([start, end]) => start < end);
}

function endsSentence(text, start, at, stop, abbreviations, hasOrdinals) {
  if (UNSPACED_STOPS.includes(stop[0])) return true;
  const after = at + stop.length;
  const next = text.slice(after, after + SENTENCE_REACH).trimStart().replace(LEADING, "");
  if (isLower(next)) return false;
  if (stop.replace(TRAILING, "") !== ".") return true;
  const words = text.slice(Math.max(start, at - SENTENCE_REACH), at).trimEnd().split(/\s+/);
  const last = words.at(-1).replace(LEADING, "").toLowerCase();
  if (last === "") return false;
  if (/^\p{Nd}+$/u.test(last)) return !(hasOrdinals && last.length <= 2);
  if (BEFORE_NUMBERS.includes(last) && /^\p{Nd}/u.test(next)) return false;
  if (/^\p{L}$/u.test(last)) return false; // an initial
  return !abbreviations.has(last);
}

/** Cut a span until each piece fits: after a comma or the like, else at a space, else anywhere, near the middle. */
export function splitToFit(text, span, fits) {
  const pieces = [];
  const waiting = [stripped(text, span)];
  while (waiting.length) {
    const [start, end] = waiting.pop();
    if (end - start <= 1 || fits(text.slice(start, end))) {
      pieces.push([start, end]);
      continue;
    }
    const cut = bestCut(text, start, end);
    waiting.push(...[[cut, end], [start, cut]].map((half) => stripped(text, half)).filter(([one, other]) => one < other));
  }
  return pieces;
}

function bestCut(text, start, end) {
  const middle = (start + end) >> 1;
  const quarter = (end - start) >> 2;
  for (const [pattern, reach] of [[CLAUSE_ENDS, quarter], [SPACES, quarter], [SPACES, 2 * quarter]]) {
    const [low, high] = [Math.max(start + 1, middle - reach), Math.min(end - 1, middle + reach)];
    const places = [...text.slice(start, high).matchAll(pattern)]
      .filter((match) => start + match.index >= low)
      .map((match) => start + match.index + match[0].length)
      .filter((place) => start < place && place < end);
    if (places.length) return places.reduce((one, other) => (Math.abs(other - middle) < Math.abs(one - middle) ? other : one));
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
  const [before, here] = [text[offset - 1], String.fromCodePoint(text.codePointAt(offset))];
  return /[\p{M}\u200d\udc00-\udfff]/u.test(here) || before === "\u200d";
}

export function between(pattern, text) {
  const spans = [];
  let start = 0;
  for (const match of text.matchAll(pattern)) {
    spans.push([start, match.index]);
    start = match.index + match[0].length;
  }
  return [...spans, [start, text.length]];
}

export function stripped(text, [start, end]) {
  const piece = text.slice(start, end);
  return [start + piece.length - piece.trimStart().length, end - (piece.length - piece.trimEnd().length)];
}
