// Lines in CAPITALS, Title Case or lowercase: the model reads sentence case, and translations get CAPITALS and lowercase back.
//
// It follows text/casing.py and text/capitals.py. A letter replaces a letter, so the user's offsets stay valid. `dotlessI`: the
// language has the letter ı, the small form of I, as Turkish does.

import { ENTITY } from "./entities.js";
import {
  ABBREVIATION_LENGTHS, ABBREVIATION_MARGIN, CAPITALS, LOG_RANK_OF_UNKNOWN, MAX_FROM_NEIGHBOUR, MAX_MARGIN_OF_WORDS, MAX_SHORT_WORD,
  FINAL_MARKS, MIN_CAPITALS, MIN_CAPITAL_SHARE,
  MIN_KNOWN_IN_HEADLINE, MIN_KNOWN_IN_TITLE, MIN_KNOWN_SHARE, MIN_LINE_WORDS, MIN_START_WORDS, NAME_MARGIN, NEIGHBOUR_SHARE, PATTERNS,
  LOWERCASE, LOWERCASE_START,
} from "./interface.js";
import { mayHaveNonWords, withItems, withoutItems } from "./keeping.js";
import { splitSentences } from "./sentences.js";
import { firstOf, isLower, isMark, isUpper, lastOf, WORDS } from "./words.js";

export const [CAPITAL_BEGINS, CASED_WORD, LANGUAGE_TOKEN, LINE, MAY_START, QUOTED_START] = [
  PATTERNS.CAPITAL_BEGINS, PATTERNS.CASED_WORD, PATTERNS.LANGUAGE_TOKEN, PATTERNS.LINE, PATTERNS.MAY_START, PATTERNS.QUOTED_START,
].map((pattern) => new RegExp(pattern, "gu"));
const VARIABLE = new RegExp(`^${PATTERNS.VARIABLE}$`);
const ENTITY_CHARACTER = "\ue001"; // stands for each character of an entity
const lengthOf = (text) => Array.from(text).length;

const lowercased = (text, dotlessI) => (dotlessI ? text.replaceAll("I", "ı").replaceAll("İ", "i") : text).toLowerCase();
const inCapitals = (text, dotlessI) => (dotlessI ? text.replaceAll("i", "İ") : text).toUpperCase();

/** Return the capital of a letter; the letter itself if its capital is two letters. */
export function capital(letter, dotlessI) {
  if (letter === "ß") return "ẞ";
  const upper = inCapitals(letter, dotlessI);
  return lengthOf(upper) === 1 ? upper : letter;
}

/** Return a text with its first letter as a capital. */
export function capitalised(text, dotlessI) {
  const first = firstOf(text);
  return capital(first, dotlessI) + text.slice(first.length);
}

/** Return a text with other words, each as long as the one that it replaces. */
function withWords(text, words, change) {
  let [output, lastEnd] = ["", 0];
  words.forEach((word, index) => {
    output += text.slice(lastEnd, word.start) + change(word.text, index, word);
    lastEnd = word.end;
  });
  return output + text.slice(lastEnd);
}

/** Return the last characters of the matches of a pattern. */
function lastLetters(pattern, text) {
  return Array.from(text.matchAll(pattern), ({ 0: match, index }) => {
    const [letter, end] = [lastOf(match), index + match.length];
    return { text: letter, start: end - letter.length, end };
  });
}

/**
 * Return a line with capitals for the words that begin with some letters; unknown words whose capital would come back as that of a
 * name, such as "brb", stay as they are.
 */
function withCapitalsAt(letters, line, words, vocabulary, dotlessI) {
  const starts = new Set(letters.map(({ start }) => start));
  return withWords(line, words.filter(({ start }) => starts.has(start)), (word) => {
    const form = capitalised(word, dotlessI);
    return isKnown(form, vocabulary) || nameMargin(word, vocabulary, dotlessI) <= NAME_MARGIN ? form : word;
  });
}

/**
 * Return a text with each line in sentence case, and the lines of the user's text that have another case: their spans, and
 * the case.
 *
 * Items that a translation copies stay as they are. `rules`: of the language's sentences.
 */
export function inSentenceCase(text, vocabulary, rules) {
  if (!text.includes("\n") && !mayHaveOtherCase(text)) return { text, lines: [] };
  const lowered = withoutCapitals(text, vocabulary, rules.dotless_i);
  if (lowered !== null) return { text: withNames(lowered, vocabulary, rules.dotless_i), lines: [{ start: 0, end: text.length, case: CAPITALS }] };
  const lines = [];
  const output = text.replace(LINE, (line, start) => {
    const result = lineInSentenceCase(line, vocabulary, rules);
    if (result.case === LOWERCASE_START) lines.push({ start, end: start + line.search(/\p{L}/u) + 1, case: LOWERCASE });
    else if (result.case) lines.push({ start, end: start + line.length, case: result.case });
    return result.text;
  });
  return { text: output, lines };
}

/** Return a translation in the case of its source, letter for letter. */
export function restoredCase(translation, sourceCase, vocabulary, dotlessI) {
  if (sourceCase === CAPITALS) return withCapitals(translation, dotlessI);
  if (sourceCase === LOWERCASE) return withLowercaseStart(translation, vocabulary, dotlessI);
  return translation;
}

/** Whether a line may have another case than a sentence: a fast answer for most lines. */
function mayHaveOtherCase(line) {
  if (isLower(line) || isUpper(line) || /^[\p{Ll}.…]/u.test(line) || mayHaveNonWords(line)) return true;
  return !line.split(/\s+/).some((word) => /^\p{L}/u.test(word) && isLower(word) && lengthOf(word) > MAX_SHORT_WORD);
}

function lineInSentenceCase(line, vocabulary, rules) {
  if (!mayHaveOtherCase(line)) return { text: line };
  const { dotless_i: dotlessI } = rules;
  const lowered = withoutCapitals(line, vocabulary, dotlessI);
  if (lowered !== null) return { text: withNames(lowered, vocabulary, dotlessI), case: CAPITALS };
  const outside = wordsOutsideItems(line);
  if (isLowercase(outside) && vocabulary.covers(capital(firstOf(outside.words[0].text)))) { // some models read lowercase only
    return { text: withNames(withSentenceStarts(line, outside, vocabulary, rules), vocabulary, dotlessI), case: LOWERCASE };
  }
  if (beginsInLowercase(outside) && vocabulary.covers(capital(firstOf(outside.words[0].text)))) {
    return { text: withCapitalsAt(outside.words.slice(0, 1), line, outside.words, vocabulary, dotlessI), case: LOWERCASE_START };
  }
  return { text: isTitle(outside, vocabulary, dotlessI) ? withoutTitle(line, outside, vocabulary, dotlessI) : line };
}

/** Return a line with a digit for each character of its items, and the words outside items, entities and language tokens. */
function wordsOutsideItems(line) {
  const blank = (token) => " ".repeat(token.length);
  let shadow = line.replace(ENTITY, (entity) => ENTITY_CHARACTER.repeat(entity.length));
  if (mayHaveNonWords(shadow)) shadow = withoutItems(shadow, "0").replace(LANGUAGE_TOKEN, blank);
  const words = Array.from(shadow.matchAll(CASED_WORD), ({ 0: text, index }) => ({ text, start: index, end: index + text.length }))
    // in "&aacute;gua", "gua" is not a word
    .filter(({ start, end }) => !shadow.slice(Math.max(start - 1, 0), end + 1).includes(ENTITY_CHARACTER));
  return { shadow, words };
}

/** Whether a line is in lowercase; one that begins with a number or an item may be in sentence case. */
function isLowercase({ shadow, words }) {
  if (words.length < MIN_LINE_WORDS || !isMark(shadow.slice(0, words[0].start))) return false;
  return words.every(({ text }) => text === text.toLowerCase()) && isLower(firstOf(words[0].text));
}

/** Whether a line is a sentence with a final mark that begins with a word in lowercase; one with a colon may begin with a prefix. */
function beginsInLowercase({ shadow, words }) {
  if (words.length < MIN_START_WORDS || !isLower(words[0].text)) return false;
  const [{ start, end }] = words;
  if (!["", "...", "…"].includes(shadow.slice(0, start).trim())) return false;
  return " ,".includes(shadow[end]) && !shadow.includes(":") && FINAL_MARKS.includes(lastOf(shadow.trimEnd()));
}

/** Whether at least half of a line's words are capitalised, and enough of these are usually lowercase. */
function isTitle({ shadow, words }, vocabulary, dotlessI) {
  const starts = new Set(lastLetters(MAY_START, shadow).map(({ start }) => start));
  const later = words.filter(({ text, start }) => lengthOf(text) > 1 && !starts.has(start));
  // after a bracket or a slash any word may be lowercase
  const isLongLowercaseWord = ({ text, start }) => lengthOf(text) > MAX_SHORT_WORD && isLower(text) && shadow[start - 1] === " ";
  if (words.length < MIN_LINE_WORDS || later.some(isLongLowercaseWord)) return false;
  const texts = later.map(({ text }) => text);
  const capitalWords = texts.filter((text) => isUpper(firstOf(text)) && !isUpper(text.slice(firstOf(text).length)));
  if (capitalWords.length < MIN_CAPITAL_SHARE * texts.length) return false;
  const commonWords = capitalWords.filter((text) => vocabulary.hasPiece(lowercased(text, dotlessI)) && nameMargin(text, vocabulary, dotlessI) < 0);
  const minKnown = texts.some(isLower) ? MIN_KNOWN_IN_HEADLINE : MIN_KNOWN_IN_TITLE;
  return commonWords.length >= Math.max(minKnown, MIN_KNOWN_SHARE * capitalWords.length);
}

/** Return a line in lowercase with a capital at the beginning of each sentence. */
function withSentenceStarts(line, { shadow, words }, vocabulary, rules) {
  const withStarts = withWords(shadow, lastLetters(MAY_START, shadow), (letter) => capital(letter, rules.dotless_i));
  const candidate = withStarts.replaceAll("\n", "-"); // inside a divided word
  const firsts = splitSentences(candidate, rules).map(([start, end]) => (
    { start: start + shadow.slice(start, end).search(/[\p{L}\p{N}]/u) }));
  return withCapitalsAt(firsts, line, words, vocabulary, rules.dotless_i);
}

/** Return a line in lowercase with capitals for names, and for what a quote begins with. */
function withNames(lowered, vocabulary, dotlessI) {
  const line = withCapitalsAt(lastLetters(QUOTED_START, lowered), lowered, wordsOutsideItems(lowered).words, vocabulary, dotlessI);
  const { words } = wordsOutsideItems(line);
  const margins = marginsOf(line, words, vocabulary, dotlessI);
  return withWords(line, words, (text, index) => {
    if (!isLower(text) || !vocabulary.reads(text) || VARIABLE.test(text)) return text; // what it lacks is copied
    let form = margins[index] > NAME_MARGIN ? capitalised(text, dotlessI) : text;
    const hasLength = ABBREVIATION_LENGTHS.includes(lengthOf(text));
    if (hasLength && abbreviationMargin(text, vocabulary, dotlessI) > ABBREVIATION_MARGIN) form = inCapitals(text, dotlessI);
    return form !== text && form.length === text.length && isKnown(form, vocabulary) ? form : text;
  });
}

/** Whether the vocabulary has a word, up to an apostrophe or a hyphen, as one piece; it has no form of "tmrw". */
const isKnown = (word, vocabulary) => vocabulary.hasPiece(vocabulary.normalForm(word.split(/['\u2019-]/u, 1)[0]).text);

/** Return a headline with all words in lowercase but names and the first one of each sentence. */
function withoutTitle(line, { shadow, words }, vocabulary, dotlessI) {
  const starts = new Set([...lastLetters(MAY_START, shadow), ...lastLetters(QUOTED_START, line)].map(({ start }) => start));
  const margins = marginsOf(line, words, vocabulary, dotlessI);
  return withWords(line, words, (text, index, { start }) => {
    const [lowered, suffix] = [lowercased(text, dotlessI), text.slice(firstOf(text).length)];
    const isKept = starts.has(start) || lowered.length !== text.length || !lowered.endsWith(suffix) || margins[index] > NAME_MARGIN;
    return isKept ? text : lowered;
  });
}

/**
 * Return for each word the log rank of its lowercase form minus that of its capitalised form.
 *
 * A neighbour with a positive margin adds a share of it, unless one of the two words has one letter, as "I" and
 * "l'Europe" have before an apostrophe: such a word is not a part of a name. A margin above `NAME_MARGIN` makes the word a name.
 */
function marginsOf(line, words, vocabulary, dotlessI) {
  const alone = words.map(({ text }) => nameMargin(text, vocabulary, dotlessI));
  const isAtStart = words.length > 0 && line.slice(0, words[0].start).trim() === ""; // its capital says nothing
  const shareOf = (index, pairStart) => {
    if (index < 0 || index >= words.length || (index === 0 && isAtStart)) return 0;
    const [left, right] = words.slice(pairStart);
    if (line.slice(left.end, right.start) !== " " || [left, right].some(beginsWithOneLetter)) return 0;
    return Math.max(0, Math.min(MAX_FROM_NEIGHBOUR, NEIGHBOUR_SHARE * alone[index]));
  };
  return alone.map((margin, index) => margin + shareOf(index - 1, index - 1) + shareOf(index + 1, index));
}

const beginsWithOneLetter = ({ text }) => /^.(['\u2019]|$)/u.test(text);

function nameMargin(word, vocabulary, dotlessI) {
  const lowered = lowercased(word, dotlessI);
  return vocabulary.logRank(lowered) - vocabulary.logRank(capitalised(lowered, dotlessI));
}

/** Return the log rank of a lowercase word, or of its capitalised form, minus that of the word in capitals. */
function abbreviationMargin(word, vocabulary, dotlessI) {
  const upper = inCapitals(word, dotlessI);
  if (!vocabulary.covers(upper)) return -LOG_RANK_OF_UNKNOWN; // of "NÃO" the vocabulary may know only the lowercase form
  return Math.min(vocabulary.logRank(word), vocabulary.logRank(capitalised(word, dotlessI))) - vocabulary.logRank(upper);
}

/** Return a translation without the capital of its first word, unless the word is a name, or "I". */
function withLowercaseStart(translation, vocabulary, dotlessI) {
  const first = wordsOutsideItems(translation).words.slice(0, 1);
  return withWords(translation, first, (text) => {
    const lowered = lowercased(text, dotlessI);
    const suffix = text.slice(firstOf(text).length);
    if (!isUpper(firstOf(text)) || lowered.length !== text.length || !lowered.endsWith(suffix)) return text;
    return vocabulary.targetLogRank(lowered) - vocabulary.targetLogRank(text) > NAME_MARGIN ? text : lowered;
  });
}

/** Return a text in capitals in sentence case, letter for letter; null for any other text, such as an abbreviation. */
export function withoutCapitals(text, vocabulary, dotlessI) {
  if (!isUpper(text) && !mayHaveNonWords(text)) return null;
  const shadow = withoutItems(text, " ");
  const words = (shadow.match(WORDS) ?? []).filter((word) => /^\p{L}+$/u.test(word));
  const letters = words.join("");
  if (!isUpper(letters)) return null;
  const margin = (total, word) => total + abbreviationMargin(lowercased(word, dotlessI), vocabulary, dotlessI);
  if (lengthOf(letters) < MIN_CAPITALS && words.reduce(margin, 0) >= MAX_MARGIN_OF_WORDS) return null;
  // in other languages, "İ" becomes two characters
  const lowered = withItems(text, (part) => lowercased(dotlessI ? part : part.replaceAll("İ", "I"), dotlessI));
  return withWords(lowered, lastLetters(CAPITAL_BEGINS, shadow), (letter) => letter);
}

/** Return a translation in capitals, letter for letter, except for copied items. */
export function withCapitals(text, dotlessI) {
  return withItems(text, (part) => Array.from(part, (letter) => capital(letter, dotlessI)).join(""));
}
