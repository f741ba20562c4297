// Labels: words alone on their lines, as in menus. Models often say such a word twice, so they read it in several forms.
//
// It follows text/edges.py and translate/rounds.py.

import { capital, LANGUAGE_TOKEN } from "./casing.js";
import { doubled } from "./coverage.js";
import { MAX_BESIDE_LABEL, MAX_LABEL, PATTERNS } from "./interface.js";
import { lacksWords } from "./keeping.js";
import { firstOf, folded, isUpper } from "./words.js";

const LABEL = new RegExp(`^${PATTERNS.LABEL}`, "u");
const [LABEL_END, FIRST_LETTER] = [PATTERNS.LABEL_END, PATTERNS.FIRST_LETTER].map((pattern) => new RegExp(pattern, "u"));

/** Return the span of a label: the only word of a line, as in a menu; a mark may follow it. Else null. */
export function labelIn(text, [start, end]) {
  const match = LABEL.exec(text.slice(start, Math.min(end, start + MAX_LABEL)));
  if (!match || match[0].length < end - start) return null;
  const prefix = text.slice(Math.max(start - MAX_BESIDE_LABEL, 0), start).split("\n").at(-1);
  const [suffix] = text.slice(end, end + MAX_BESIDE_LABEL).split("\n", 1);
  if (prefix.length + suffix.length >= MAX_BESIDE_LABEL) return null;
  return lacksWords(prefix.replace(LANGUAGE_TOKEN, "") + suffix) ? [start, start + match[1].length] : null;
}

/** Return the translation of a label without a colon or a full stop, and with a capital if its source has one. */
export function asLabel(translation, source = "", dotlessI = false) {
  const label = translation.replace(LABEL_END, "");
  return isUpper(firstOf(source)) ? label.replace(FIRST_LETTER, (_, marks, letter) => marks + capital(letter, dotlessI)) : label;
}

/**
 * Return the index of the most frequent translation among a label's forms.
 *
 * A single word goes before a phrase, and a phrase before one that repeats itself; a tie goes to the earliest form.
 */
export function mostFrequent(translations) {
  const texts = translations.map((translation) => folded(asLabel(translation)));
  const ranks = texts.map((text) => {
    const isWord = /^\S+$/.test(text.trim());
    const count = texts.filter((otherText) => otherText === text).length;
    return (2 * isWord + !doubled(text).length) * (texts.length + 1) + count;
  });
  return ranks.indexOf(Math.max(...ranks));
}
