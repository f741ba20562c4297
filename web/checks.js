// Faults of a translation that rules find without a model, as translation QA tools report them. It follows coverage/checks.py.

import { doubled } from "./coverage.js";
import {
  BRACKET_FORMS, BRACKET_PAIRS, DIGIT_RUNS, KEPT_KINDS, MAX_INTEGER, MAX_SMALL_NUMBER, MIN_DOUBLED, MIN_UNTRANSLATED, PATTERNS, ROMAN_VALUES,
} from "./interface.js";
import { CHECKED_ITEMS, itemsOf } from "./keeping.js";
import { folded, isAlphanumeric, isLower, WORDS } from "./words.js";

const [NUMBER, ROMAN_NUMERAL_IN_TEXT] = [PATTERNS.NUMBER, PATTERNS.ROMAN_NUMERAL_IN_TEXT].map((pattern) => new RegExp(pattern, "gu"));
const AFTERNOON = new RegExp(PATTERNS.AFTERNOON, "iu");
const LAST_MARK = new RegExp(PATTERNS.LAST_MARK, "u");
const BARE_PLACEHOLDER = new RegExp(PATTERNS.BARE_PLACEHOLDERS, "u");
const SEPARATOR = /[.,]/g;
// digits of other scripts and of exponents compare as plain ones
const DIGITS = new Map(DIGIT_RUNS.flatMap(([code, value, length]) =>
  Array.from({ length }, (_, index) => [String.fromCharCode(code + index), String(value + index)])));
const TIME = new RegExp(`^${PATTERNS.TIME}$`, "u");
const isPlainNumber = (text) => /^\p{Nd}+$/u.test(text);
const wordsIn = (text) => text.match(WORDS) ?? [];

/** Return the faults that rules find in the translation of a text; `words`: the model file's, by kind, of both languages. */
export function checksOf(source, translation, words) {
  if (!source.trim() || !translation.trim()) return [];
  const items = [source, translation].map(checkedItems);
  const texts = [source, translation].map((text, side) => items[side].reduce((rest, { text: item }) => rest.replace(item, () => " "), text));
  const faults = [
    ...itemChecks(...items), ...numberChecks(texts, words), ...signChecks(texts, words.sign_names), ...endCheck(texts, words.question_marks),
    ...doubledChecks(...texts), ...untranslatedCheck(...texts), ...bracketChecks(...texts), ...negationChecks(texts, words.negations),
  ];
  return faults.map(([kind, missing, added]) => ({ kind, missing, added }));
}

// ---- placeholders, tags and URLs
/** Return the items of a text, placeholders without what is glued to them. */
function checkedItems(text) {
  return itemsOf(text, CHECKED_ITEMS).map(({ text: item, kind }) => (
    { text: (kind === "placeholders" && BARE_PLACEHOLDER.exec(item)?.[0]) || item, kind }));
}

function itemChecks(source, translation) {
  return KEPT_KINDS.flatMap((kind) => {
    const [missing, added] = [source, translation].map((items) => items.filter((item) => item.kind === kind).map(({ text }) => text));
    return [
      ...without(missing, added).map((item) => [kind, item, ""]), ...without(added, missing).map((item) => [kind, "", item]),
    ];
  });
}

/** Return the multiset difference of two lists; equal texts are adjacent in it. */
function without(texts, others) {
  const counts = new Map();
  for (const text of texts) counts.set(text, (counts.get(text) ?? 0) + 1);
  for (const text of others) if (counts.has(text)) counts.set(text, counts.get(text) - 1);
  return Array.from(counts).flatMap(([text, count]) => Array(Math.max(count, 0)).fill(text));
}

// ---- numbers
/** Return the values that a number may have, as plain decimal strings: "1.234" has two. */
function valuesOf(number) {
  const digits = number.replace(/[\u00a0\u202f '\u2019]/g, "");
  const separators = digits.match(SEPARATOR) ?? [];
  const plain = digits.replace(SEPARATOR, "");
  if (!separators.length) return [trimmed(plain)];
  const last = digits.lastIndexOf(separators.at(-1));
  const [integer, fraction] = [digits.slice(0, last).replace(SEPARATOR, ""), digits.slice(last + 1)];
  const decimal = trimmed(`${integer}.${fraction}`);
  if (new Set(separators).size === 2) return [decimal];
  if (separators.length > 1) return [trimmed(plain), trimmed(digits)];
  return fraction.length === 3 && integer.length <= 3 ? [decimal, trimmed(plain)] : [decimal];
}

function trimmed(value) {
  const bare = value.replace(/^0+/, "") || "0";
  return bare.includes(".") ? bare.replace(/\.?0*$/, "") : bare;
}

const numbersIn = (text) => Array.from(text, (character) => DIGITS.get(character) ?? character).join("").match(NUMBER) ?? [];

/** Return numbers that one side lacks, in digits, words or Roman numerals. */
function numberChecks(texts, words) {
  const unmatched = [];
  const remaining = numbersIn(texts[1]).map((number) => ({ number, values: valuesOf(number) }));
  for (const number of numbersIn(texts[0])) {
    const values = valuesOf(number);
    const index = remaining.findIndex((other) => other.values.some((value) => values.includes(value)));
    if (index < 0) unmatched.push(number);
    else remaining.splice(index, 1);
  }
  if (!unmatched.length && !remaining.length) return [];
  const first = unexplained(unmatched, remaining.map(({ number }) => number), texts, words, [0, 1]);
  const second = unexplained(first.remaining, first.missing, texts, words, [1, 0]);
  const hasLargeNumber = new RegExp(words.large_number, "iu").test(texts[0]);
  const isPart = (number) => hasLargeNumber && integerOf(number.replace(/[^\p{Nd}]/gu, "")) > MAX_SMALL_NUMBER;
  return [
    ...second.remaining.map((number) => ["numbers", number, ""]),
    ...second.missing.filter((number) => !isPart(number)).map((number) => ["numbers", "", number]),
  ];
}

/**
 * Return the numbers that no other form in the other text explains, and the other numbers that explained none.
 *
 * `sides`: the index of the numbers' text, and of the other text.
 */
function unexplained(numbers, otherNumbers, texts, words, sides) {
  const remaining = [...otherNumbers];
  if (!numbers.length) return { missing: [], remaining };
  const [text, otherText] = sides.map((side) => texts[side]);
  const [own, inWords] = sides.map((side) => valuesInWords(texts[side], words.numbers[side]));
  // what translates a number word or an article ("a", "um") of this text explains no digits
  for (const [value, count] of own) inWords.set(value, Math.max((inWords.get(value) ?? 0) - count, 0));
  const articles = wordsIn(text).filter((word) => words.articles[sides[0]].includes(folded(word)));
  inWords.set(1, (inWords.get(1) ?? 0) - articles.length);
  const afternoons = [text, otherText].map((one) => AFTERNOON.test(one));
  const remove = (number) => remaining.splice(remaining.indexOf(number), 1);
  const missing = numbers.filter((number) => {
    const time = sameTime(number, remaining, ...afternoons);
    time.forEach(remove);
    if (time.length || (number === "00" && /\p{Nd}:00/u.test(text))) return false; // "10:00" and "10h"
    const value = isPlainNumber(number) ? integerOf(number) : -1;
    const related = relatedTo(value, ...afternoons);
    const match = remaining.find((form) => isPlainNumber(form) && related.includes(integerOf(form)));
    if (match !== undefined) {
      remove(match);
      return false;
    }
    const count = inWords.get(value) ?? 0;
    inWords.set(value, count - 1);
    return count <= 0;
  });
  return { missing, remaining };
}

/** Return how often a text has each number in words or in Roman numerals. */
function valuesInWords(text, names) {
  const counts = new Map();
  const named = wordsIn(text).map(folded).filter((word) => Object.hasOwn(names, word)).map((word) => names[word]);
  const numerals = text.match(ROMAN_NUMERAL_IN_TEXT) ?? [];
  for (const value of [...numerals.map(romanValue), ...named]) counts.set(value, (counts.get(value) ?? 0) + 1);
  return counts;
}

const integerOf = (digits) => (digits.length <= String(MAX_INTEGER).length ? Number(digits) : MAX_INTEGER);

/** Return the other numbers that name the time of a number: 19 and 45 for "19.45", 17.30 for "5.30 p.m.". */
function sameTime(number, otherNumbers, ...afternoons) {
  const [, hour, minutes] = TIME.exec(number) ?? [];
  if (!hour) return [];
  const hours = [Number(hour), ...relatedTo(Number(hour), ...afternoons)];
  const same = otherNumbers.find((form) => {
    const [, otherHour, otherMinutes] = TIME.exec(form) ?? [];
    return otherMinutes === minutes && hours.includes(Number(otherHour));
  });
  if (same !== undefined) return [same];
  const minutesIndex = otherNumbers.indexOf(minutes);
  const hourForm = otherNumbers.find((form, index) => index !== minutesIndex && isPlainNumber(form) && hours.includes(integerOf(form)));
  if (hourForm === undefined || (minutesIndex < 0 && minutes !== "00")) return [];
  return minutesIndex < 0 ? [hourForm] : [hourForm, minutes];
}

/** Return numbers that may mean the same: 17 for "5 p.m.", 90 for "the 1990s". */
function relatedTo(value, isAfternoon, isOtherAfternoon) {
  const isTens = value % 10 === 0;
  return [
    ...(value >= 0 && value <= 12 && isAfternoon ? [value + 12] : []),
    ...(value > 12 && value <= 24 && isOtherAfternoon ? [value - 12] : []),
    ...(value >= 1900 && value <= 1990 && isTens ? [value - 1900] : []),
    ...(value >= 20 && value <= 90 && isTens ? [value + 1900] : []),
  ];
}

function romanValue(numeral) {
  const values = Array.from(numeral, (letter) => ROMAN_VALUES[letter]);
  return values.reduce((sum, value, index) => sum + (value < Math.max(...values.slice(index)) ? -value : value), 0);
}

// ---- signs
/** Return signs, such as those of currencies, that one text lacks both as a sign and as a word. */
function signChecks(texts, signNames) {
  return Object.entries(signNames).flatMap(([sign, names]) => {
    const [count, targetCount] = texts.map((text) => text.split(sign).length);
    const isNamed = (text) => names.some((name) => folded(text).includes(name));
    if (count > targetCount && !isNamed(texts[1])) return [["signs", sign, ""]];
    return targetCount > count && !isNamed(texts[0]) ? [["signs", "", sign]] : [];
  });
}

// ---- whole texts
/** Return the final marks of both texts, if only one of these is a question mark. */
function endCheck(texts, questionMarks) {
  const marks = texts.map((text) => LAST_MARK.exec(text.trimEnd())?.[1] ?? "");
  const [isQuestion, isTargetQuestion] = marks.map((mark, side) => questionMarks[side].includes(mark));
  return marks.every((mark) => mark) && isQuestion !== isTargetQuestion ? [["end", ...marks]] : [];
}

/**
 * Return the phrases that a translation says twice in a row, if its source has fewer such phrases.
 *
 * A phrase that the source doubles, too, such as a name or "ha ha", is not reported.
 */
function doubledChecks(...texts) {
  const [sourcePhrases, phrases] = texts.map(doubled);
  if (phrases.length <= sourcePhrases.length) return [];
  return [...new Set(without(phrases, sourcePhrases))].filter((phrase) => Array.from(phrase).length >= MIN_DOUBLED).map((phrase) => ["doubled", "", phrase]);
}

/** Return the longest run of words that both texts have; only its words in small letters count, not names. */
function untranslatedCheck(...texts) {
  const run = longestRun(...texts.map((text) => wordsIn(text).filter(isAlphanumeric)));
  return run.filter(isLower).length >= MIN_UNTRANSLATED ? [["untranslated", run.join(" "), ""]] : [];
}

/** Return the longest run of words that both lists have. */
function longestRun(words, targetWords) {
  const indices = new Map(targetWords.map((word) => [word, []]));
  targetWords.forEach((word, at) => indices.get(word).push(at));
  if (new Set(words.filter((word) => indices.has(word))).size < MIN_UNTRANSLATED) return [];
  let [lengths, longest, end] = [new Map(), 0, 0]; // of the run that ends at an index of the target words
  words.forEach((word, index) => {
    lengths = new Map((indices.get(word) ?? []).map((at) => [at, (lengths.get(at - 1) ?? 0) + 1]));
    for (const length of lengths.values()) if (length > longest) [longest, end] = [length, index + 1];
  });
  return words.slice(end - longest, end);
}

/** Return pairs of brackets that the texts have in different numbers; square ones count as round. */
function bracketChecks(...texts) {
  const [counts, targetCounts] = texts.map(bracketCounts);
  return BRACKET_PAIRS.flatMap((pair, index) => {
    const [[opening, closing], [targetOpening, targetClosing]] = [counts[index], targetCounts[index]];
    if (opening !== closing || (opening === targetOpening && closing === targetClosing)) return []; // "a)" is not checked
    if (targetOpening + targetClosing === opening + closing) { // one mark instead of the other
      const [left, right] = pair;
      return [targetOpening < opening ? ["brackets", left, right] : ["brackets", right, left]];
    }
    return [targetOpening + targetClosing < opening + closing ? ["brackets", pair, ""] : ["brackets", "", pair]];
  });
}

function bracketCounts(text) {
  const bare = text.replace(/\[([\p{L}\p{N}_])\]|\[\.\.\.\]|\[…\]/gu, "$1"); // "[w]hile", "[...]"
  const plain = Array.from(bare, (mark) => BRACKET_FORMS[mark] ?? mark);
  return BRACKET_PAIRS.map((pair) => Array.from(pair, (bracket) => plain.filter((mark) => mark === bracket).length));
}

/** Return the negation that only one text has; nothing unless there are rules for both languages. */
function negationChecks(texts, negations) {
  if (!negations) return [];
  const match = (side, isLoose) => new RegExp(negations[side][isLoose], "iu").exec(texts[side]);
  const [negation, targetNegation] = [match(0, 0), match(1, 0)];
  return [
    ...(negation && !match(1, 1) ? [["negation", negation[0], ""]] : []),
    ...(targetNegation && !match(0, 1) ? [["negation", "", targetNegation[0]]] : []),
  ];
}
