// Edges of a sentence that lower quality: list marks, brackets and quotes around it, a missing full stop, "!!!". It follows
// text/edges.py: the model reads the bare sentence with one mark, and the translation gets the edges of the source back.

import { markOf } from "./finishing.js";
import {
  CASED_WORD_PATTERN, ENCLOSING, LABEL_PATTERN, LAST_WITH_FULL_STOP, MAX_BESIDE_LABEL, MAX_LABEL, MIN_WORDS,
  NO_WORDS_PATTERN,
} from "./interface.js";
import { regex } from "./patterns.js";
import { endOfMarks, hasPair, rowsOf } from "./rewriting.js";
import { stripped } from "./sentences.js";
import { hasLetters, isAlphanumeric, lastOf } from "./words.js";

const inOneString = (rows) => rows.map((row) => ({ ...row, pattern: new RegExp(row.pattern, "u") }));
const [AFTER_ROWS, [MARKS]] = [rowsOf("after"), rowsOf("ending")].map(inOneString);
const [CASED_WORD, NO_WORDS] = [CASED_WORD_PATTERN, NO_WORDS_PATTERN].map((source) => regex(source, "gu"));
const LABEL = regex(`^${LABEL_PATTERN}`);

/** Return a sentence without what is copied around it; empty if nothing remains to translate. */
export function edgesOf(text, sentence, hasOrdinals) {
  return withoutEnclosing(text, withoutCopiedEdges(text, sentence, hasOrdinals));
}

/** Return a sentence without list marks before it and signs around it. `hasOrdinals`: "3." may belong to it. */
export function withoutCopiedEdges(text, [start, end], hasOrdinals) {
  if (!hasLetters(text.slice(start, end).replace(NO_WORDS, ""))) return [start, start];
  start = endOfMarks(text, [start, end], hasOrdinals);
  for (const row of end - start > 1 && !isAlphanumeric(lastOf(text.slice(0, end))) ? AFTER_ROWS : []) {
    const match = row.pattern.exec(text.slice(start, end));
    if (match && !hasPair(match[0], text.slice(start, end))) end -= match[0].length;
  }
  return stripped(text, [start, end]);
}

/** Return the span inside the brackets and quotes that enclose a sentence whole. */
export function withoutEnclosing(text, sentence) {
  let [start, end] = sentence;
  if (text[end - 1] === ".") end--;
  while (end - start > 2 && text[end - 1] === ENCLOSING[text[start]]) {
    const inner = text.slice(start + 1, end - 1);
    if (inner.includes(text[start]) || inner.includes(text[end - 1]) || !hasLetters(inner)) break;
    [start, end] = stripped(text, [start + 1, end - 1]);
  }
  return start > sentence[0] ? [start, end] : sentence;
}

/** Return what the model reads at a sentence's end instead: { text, start, end }; null if it reads the same. */
export function endingOf(text, [start, end]) {
  const sentence = text.slice(start, end);
  const last = lastOf(sentence);
  if (isAlphanumeric(last)) { // a shorter text without a full stop may be a label
    return last > LAST_WITH_FULL_STOP || (sentence.match(CASED_WORD)?.length ?? 0) < MIN_WORDS ? null : { text: ".", start: end, end };
  }
  const match = MARKS.pattern.exec(sentence);
  return match && { text: markOf(match[0]), start: start + match.index, end: start + match.index + match[0].length };
}

/** Return the span of a label: the only word of a line, as in a menu; a mark may follow it. Else null. */
export function labelIn(text, [start, end]) {
  const match = LABEL.exec(text.slice(start, Math.min(end, start + MAX_LABEL)));
  if (!match || match[0].length < end - start) return null;
  const prefix = text.slice(Math.max(start - MAX_BESIDE_LABEL, 0), start).split("\n").at(-1);
  const [suffix] = text.slice(end, end + MAX_BESIDE_LABEL).split("\n", 1);
  const isAlone = prefix.length + suffix.length < MAX_BESIDE_LABEL && !hasLetters(prefix.replace(NO_WORDS, "") + suffix);
  return isAlone ? [start, start + match[1].length] : null;
}
