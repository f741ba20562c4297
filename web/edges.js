// Brackets and quotes around a sentence, a missing full stop, an ellipsis, "!!!": the model reads the bare sentence with one mark,
// and the translation gets the edges of the source back. It follows text/edges.py.

import { CASED_WORD } from "./casing.js";
import { ENCLOSING, LAST_WITHOUT_JOINERS, MIN_WORDS, PATTERNS } from "./interface.js";
import { stripped } from "./sentences.js";
import { isAlphanumeric, lastOf } from "./words.js";

const APOSTROPHE = new RegExp(PATTERNS.APOSTROPHE, "gu");
const FINAL_MARK = new RegExp(PATTERNS.FINAL_MARK, "u");

/** Return the span inside the brackets and quotes that enclose a sentence whole, or after a quote that it leaves open: see edges.py. */
export function withoutEnclosing(text, [sentenceStart, sentenceEnd]) {
  const isOpen = text.slice(sentenceStart, sentenceEnd).lastIndexOf('"') === 0;
  const [first] = stripped(text, [sentenceStart + isOpen, sentenceEnd]);
  let [start, end] = [first, sentenceEnd - (text[sentenceEnd - 1] === ".")];
  while (end - start > 2 && text[end - 1] === ENCLOSING[text[start]]) {
    const inner = text.slice(start + 1, end - 1).replace(APOSTROPHE, "");
    if (inner.includes(text[start]) || inner.includes(text[end - 1]) || !/\p{L}/u.test(inner)) break;
    [start, end] = stripped(text, [start + 1, end - 1]);
  }
  return [start, start > first ? end : sentenceEnd];
}

/** Whether a sentence in Latin, Greek or Cyrillic letters ends with a letter or a digit, and is not a label. */
export function lacksFullStop(sentence) {
  const last = lastOf(sentence);
  return isAlphanumeric(last) && last <= LAST_WITHOUT_JOINERS && (sentence.match(CASED_WORD)?.length ?? 0) >= MIN_WORDS;
}

/** Return the mark that a model reads instead of the marks at a sentence's end, or instead of none. */
export const markOf = (ending) => [..."?!"].find((mark) => ending.includes(mark)) ?? ".";

/** Return a translation with this ending instead of its final mark, if that is `markOf(ending)`, or after its last letter. */
export function withEnding(translation, ending) {
  const body = translation.trimEnd();
  const match = FINAL_MARK.exec(body);
  if (!match) return ending && isAlphanumeric(lastOf(body)) ? body + ending : translation;
  return markOf(match[0]) === markOf(ending) ? body.slice(0, match.index) + ending + body.slice(match.index + 1) : translation;
}
