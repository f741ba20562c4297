// Lines in CAPITALS or lowercase: the model reads sentence case, and translations get the case back.
//
// It follows text/casing.py: the rules see a `Form`, and each letter replaces a letter. `dotlessI`: the language has the
// letter ı, the small form of I, as Turkish does.

import {
  ABBREVIATION_LENGTHS, ABBREVIATION_MARGIN, CAPITALS, CAPITAL_BEGINS_PATTERN, CASED_WORD_PATTERN, FINAL_MARKS, ITEM, LINE_PATTERN,
  LOWERCASE, MAY_START_PATTERN, MIN_CAPITALS, MIN_LINE_WORDS,
  MIN_START_WORDS, NAME_MARGIN, NO_WORDS_PATTERN, VARIABLE_PATTERN,
} from "./interface.js";
import { regex } from "./patterns.js";
import { splitSentences } from "./sentences.js";
import { firstOf, isLower, isUpper, lastOf } from "./words.js";

const [CASED_WORD, CAPITAL_BEGINS, NO_WORDS, LINE, MAY_START] = [
  CASED_WORD_PATTERN, CAPITAL_BEGINS_PATTERN, NO_WORDS_PATTERN, LINE_PATTERN, MAY_START_PATTERN,
].map((pattern) => regex(pattern, "gu"));
const VARIABLE = regex(`^${VARIABLE_PATTERN}$`);
const MAY_BEGIN = new RegExp(`[\\p{L}\\p{N}${ITEM}]`, "u");
const lengthOf = (text) => Array.from(text).length;

const lowered = (text, dotlessI) => (dotlessI ? text.replaceAll("I", "ı").replaceAll("İ", "i") : text).toLowerCase();
const raised = (text, dotlessI) => (dotlessI ? text.replaceAll("i", "İ") : text).toUpperCase();

/** Return the capital of a letter; the letter itself if its capital is two letters. */
export function capital(letter, dotlessI) {
  if (letter === "ß") return "ẞ";
  const upper = raised(letter, dotlessI);
  return lengthOf(upper) === 1 ? upper : letter;
}

/** Return a text with its first letter as a capital. */
export function capitalised(text, dotlessI) {
  const first = firstOf(text);
  return capital(first, dotlessI) + text.slice(first.length);
}

/** Return a line with spaces for tokens of languages, and for entities such as "&lt;". */
const outsideOf = (line) => line.replace(NO_WORDS, (part) => " ".repeat(part.length));

/** Return the words of a line outside these. */
export function casedWords(line) {
  return Array.from(outsideOf(line).matchAll(CASED_WORD), ({ 0: text, index }) => ({ text, start: index, end: index + text.length }));
}

/** Return a line with other words, each as long as the one that it replaces. */
function withWords(line, words, change) {
  let [output, end] = ["", 0];
  for (const word of words) {
    output += line.slice(end, word.start) + change(word.text, word);
    ({ end } = word);
  }
  return output + line.slice(end);
}

/** Return the offsets of the last characters of the matches of a pattern. */
const lastOffsets = (pattern, text) => new Set(Array.from(text.matchAll(pattern), ({ 0: match, index }) => index + match.length - lastOf(match).length));

/** Return a text with each line in sentence case, and the lines that have another one: their spans, and the case. */
export function inSentenceCase(text, vocabulary, rules) {
  const [lines, casing] = [[], new Casing(vocabulary, rules)];
  const cased = text.replace(LINE, (line, start) => {
    const result = casing.line(line);
    if (result.case) lines.push({ span: [start, start + (result.length ?? line.length)], case: result.case });
    return result.text;
  });
  return { text: cased, lines };
}

/** Return a translation, whose items are `ITEM`s, in the case of its source, letter for letter. */
export function restoredCase(translation, sourceCase, vocabulary, dotlessI) {
  if (sourceCase === CAPITALS) return Array.from(translation, (letter) => capital(letter, dotlessI)).join("");
  return sourceCase === LOWERCASE ? withLowercaseStart(translation, vocabulary, dotlessI) : translation;
}

/** Return a translation without the capital of its first word, unless the word is a name, or "I". */
function withLowercaseStart(translation, vocabulary, dotlessI) {
  return withWords(translation, casedWords(translation).slice(0, 1), (word) => {
    const [lowercase, suffix] = [lowered(word, dotlessI), word.slice(firstOf(word).length)];
    if (!isUpper(firstOf(word)) || suffix !== suffix.toLowerCase() || lowercase.length !== word.length) return word;
    return vocabulary.targetLogRank(lowercase) - vocabulary.targetLogRank(word) > NAME_MARGIN ? word : firstOf(lowercase) + suffix;
  });
}

/** The rules about the case of a line, in one language. */
class Casing {
  constructor(vocabulary, rules) {
    [this.vocabulary, this.rules, this.dotlessI] = [vocabulary, rules, rules.dotless_i];
  }

  /** Return a line in sentence case, and its case if it had another one. */
  line(line) {
    const lowercase = this.withoutCapitals(line);
    if (lowercase !== null) return { text: lowercase, case: CAPITALS };
    if (!isLower(line) && !/^[\p{Lowercase}.…]/u.test(line)) return { text: line }; // most lines
    const [words, outside] = [casedWords(line), outsideOf(line)];
    if (!words.length || !this.vocabulary.covers(capital(firstOf(words[0].text), this.dotlessI))) return { text: line }; // some models read lowercase only
    if (isLowercase(outside, words)) return { text: this.#withNames(this.#withCapitalsAt(this.#sentenceStarts(outside), line)), case: LOWERCASE };
    if (!beginsInLowercase(outside, words)) return { text: line };
    const [{ start }] = words;
    return { text: this.#withCapitalsAt([start], line), case: LOWERCASE, length: start + 1 }; // of the first sentence alone
  }

  /** Return a text in capitals in sentence case; null for any other text. */
  withoutCapitals(text) {
    if (!isUpper(text)) return null;
    if (lengthOf((text.match(CASED_WORD) ?? []).join("")) < MIN_CAPITALS) return null;
    // in other languages, "İ" becomes two characters
    const [lowercase, starts] = [lowered(this.dotlessI ? text : text.replaceAll("İ", "I"), this.dotlessI), lastOffsets(CAPITAL_BEGINS, text)];
    const cased = lowercase.replace(/[^]/gu, (letter, offset) => (starts.has(offset) ? text.slice(offset, offset + letter.length) : letter));
    return this.#withNames(cased);
  }

  /** Return the offset of the first character of each sentence of a line in lowercase. */
  #sentenceStarts(line) {
    const candidate = line.replace(MAY_START, (match) => match.slice(0, -lastOf(match).length) + capital(lastOf(match), this.dotlessI));
    return splitSentences(candidate, this.rules).map(([start, end]) => start + line.slice(start, end).search(MAY_BEGIN));
  }

  #withCapitalsAt(offsets, line) {
    const starts = new Set(offsets);
    return line.replace(/[^]/gu, (letter, offset) => (starts.has(offset) ? capital(letter, this.dotlessI) : letter));
  }

  /** Return a line in lowercase with capitals for names. */
  #withNames(line) {
    return withWords(line, casedWords(line), (text) => {
      if (!isLower(text) || !this.vocabulary.reads(text) || VARIABLE.test(text)) return text; // what it lacks is copied
      let form = this.#nameMargin(text) > NAME_MARGIN ? capitalised(text, this.dotlessI) : text;
      if (ABBREVIATION_LENGTHS.includes(lengthOf(text)) && this.#abbreviationMargin(text) > ABBREVIATION_MARGIN) form = raised(text, this.dotlessI);
      return form !== text && form.length === text.length && this.#isKnown(form) ? form : text;
    });
  }

  /** Whether the vocabulary has a word, up to an apostrophe or a hyphen, as one piece; it has no form of "tmrw". */
  #isKnown(word) {
    return this.vocabulary.hasPiece(word.split(/['\u2019-]/u, 1)[0]);
  }

  /** Return the log rank of a word's lowercase form minus that of its capitalised form; high for names. */
  #nameMargin(word) {
    const lowercase = lowered(word, this.dotlessI);
    return this.vocabulary.logRank(lowercase) - this.vocabulary.logRank(capitalised(lowercase, this.dotlessI));
  }

  /** Return the log rank of a lowercase word, or of its capitalised form, minus that of the word in capitals. */
  #abbreviationMargin(word) {
    const upper = raised(word, this.dotlessI);
    return Math.min(this.vocabulary.logRank(word), this.vocabulary.logRank(capitalised(word, this.dotlessI))) - this.vocabulary.logRank(upper);
  }
}

/** Whether a line is in lowercase; one that begins with a number or an item may be in sentence case. */
function isLowercase(line, words) {
  if (words.length < MIN_LINE_WORDS || MAY_BEGIN.test(line.slice(0, words[0].start))) return false;
  return words.every(({ text }) => text === text.toLowerCase()) && isLower(firstOf(words[0].text));
}

/** Whether a line is a sentence with a final mark that begins with a word in lowercase; one with a colon may begin with a prefix. */
function beginsInLowercase(line, words) {
  const [{ text, start, end }] = words;
  if (words.length < MIN_START_WORDS || !isLower(text) || !["", "...", "…"].includes(line.slice(0, start).trim())) return false;
  return " ,".includes(line[end]) && !line.includes(":") && FINAL_MARKS.includes(lastOf(line.trimEnd()));
}
