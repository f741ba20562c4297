// Faults of a translation that rules find without a model, as translation QA tools report them. It follows capsule_mt/checks.

import { doubled } from "./coverage.js";
import { withoutEntities } from "./entities.js";
import {
  AFTERNOON_PATTERN, BARE_PLACEHOLDERS_PATTERN, BEFORE_NAME, BRACKET_FORMS, BRACKET_MARKS, BRACKET_PAIRS, BRANCHES_PATTERN, CELL_END_PATTERN,
  CODE_MARKS, HALF, KEPT_KINDS, LAST_MARKS_PATTERN, MAX_INTEGER, MAX_NAME, MAX_SMALL_NUMBER, MAX_SWAP_PHRASE, MAX_SWAP_TEXT, MAY_QUOTE_PATTERN,
  MAX_UNMATCHED, MIN_DOUBLED, MIN_NAME, MIN_SIMILAR, MIN_UNTRANSLATED, NUMBERS_AND_BRACKETS_PATTERN, NUMBER_PATTERN, OTHER_DIGIT_PATTERN,
  PARTS_OF_DATE_PATTERN, QUOTE_MARKS, ROMAN_NUMERAL_IN_TEXT_PATTERN, ROMAN_VALUES, STEM, TIME_OR_DATE_PATTERN, TIME_PATTERN, UNITS,
  VERBS, YEAR_PATTERN,
} from "./interface.js";
import { regex } from "./patterns.js";
import { withItems } from "./rewriting.js";
import { folded, isAlphanumeric, isLower, WORDS } from "./words.js";

const [NUMBER, OTHER_DIGIT, ROMAN_NUMERAL_IN_TEXT] = [NUMBER_PATTERN, OTHER_DIGIT_PATTERN, ROMAN_NUMERAL_IN_TEXT_PATTERN].map((pattern) => regex(pattern, "gu"));
const AFTERNOON = regex(AFTERNOON_PATTERN, "iu");
const LAST_MARKS = regex(LAST_MARKS_PATTERN);
const CELL_END = regex(CELL_END_PATTERN);
const BRANCHES = regex(`^(?:${BRANCHES_PATTERN})`);
const BARE_PLACEHOLDER = regex(BARE_PLACEHOLDERS_PATTERN);
const SEPARATOR = /[.,]/g;
const COMPARED = regex(NUMBERS_AND_BRACKETS_PATTERN, "gu");
const MAY_QUOTE = regex(MAY_QUOTE_PATTERN, "gu");
const TIME = regex(`^${TIME_PATTERN}$`);
const TIME_OR_DATE = regex(TIME_OR_DATE_PATTERN, "gu");
const PARTS_OF_DATE = regex(PARTS_OF_DATE_PATTERN, "uy");
const YEAR = regex(`^(?:${YEAR_PATTERN})$`);
const isPlainNumber = (text) => /^\p{Nd}+$/u.test(text);
const wordsIn = (text) => text.match(WORDS) ?? [];

/** Return the faults that rules find in the translation of a text; `words`: the model file's, by kind, of both languages. */
export function checksOf(source, translation, words) {
  if (!source.trim() || !translation.trim()) return [];
  [source, translation] = [source, translation].map(withoutEntities);
  const sides = [source, translation].map(itemsAndWords);
  const texts = sides.map((side) => side.words);
  const numbers = pairedNumbers(texts);
  const { months = [], weekdays = [] } = Object.fromEntries(Object.entries(words.names ?? {}).map(([kind, names]) => (
    [kind, texts.map((text, side) => namedValues(text, names[side]))])));
  // not beside unpaired digits, which may stand for a number word of the other text
  const smallNumbers = numbers.missing.length || numbers.added.length ? [] : texts.map((text, side) => (
    smallNumbersIn(text, words.numbers[side], words.names?.weekdays[side], weekdays[1 - side])));
  const faults = [
    ...itemChecks(...sides.map(({ items }) => items)), ...numberChecks(numbers, texts, words), ...changeChecks("numbers", ...smallNumbers),
    ...changeChecks("months", ...months), ...changeChecks("weekdays", ...weekdays), ...nameChecks(texts, words.translated_names ?? []),
    ...signChecks(texts, words.sign_names), ...endCheck(texts, words.question_marks),
    ...doubledChecks(...texts), ...untranslatedCheck(texts, source.trim() === translation.trim()), ...bracketChecks(...texts), ...negationChecks(texts, words.negations),
    ...sentenceChecks(source, translation),
  ];
  return faults.map(([kind, missing, added]) => ({ kind, missing, added }));
}

/** Return the number of certain faults, for which a sentence is searched again: see checks/certain.py. */
export function countCertainFaults(source, translation, words) {
  const [compared, otherCompared] = [source, translation].map((text) => text.match(COMPARED)?.join(" "));
  const invented = Number(hasInventedQuotes(source, translation));
  if (compared === otherCompared && !doubled(translation).length) return invented;
  if (!source.trim() || !translation.trim()) return invented;
  const texts = [source, translation].map((text) => itemsAndWords(withoutEntities(text)).words);
  return [...bracketChecks(...texts), ...numberChecks(pairedNumbers(texts), texts, words), ...doubledChecks(...texts)].length + invented;
}

const hasQuotes = (text) => Array.from(QUOTE_MARKS).some((mark) => text.includes(mark));
const countQuotes = (source) => withoutEntities(source).match(MAY_QUOTE)?.length ?? 0;

/** Whether only the translation has quotes, or it alone has an odd number of straight ones. */
function hasInventedQuotes(source, translation) {
  if (!hasQuotes(translation)) return false;
  const count = countQuotes(source);
  return !count || (count % 2 === 0 && translation.split('"').length % 2 === 0);
}

/** Whether a text has a bracket that the source does not have at all, or quotes and the source has none. */
export function hasInventedMark(source, text) {
  return Array.from(text).some((mark) => BRACKET_MARKS.includes(mark) && !source.includes(mark)) || (hasQuotes(text) && !countQuotes(source));
}

// ---- placeholders, tags and URLs
/** Return the items of a text, placeholders without what is glued to them, and the text with spaces instead. */
function itemsAndWords(text) {
  const items = [];
  const words = withItems(text, KEPT_KINDS, ({ text: item, kind }) => {
    const bare = (kind === "placeholders" && BARE_PLACEHOLDER.exec(item)?.[0]) || item;
    items.push({ text: bare, kind });
    return item.replace(bare, " ");
  });
  return { items, words };
}

/** Return items that one text lacks, and copied placeholders with words of the source language. */
function itemChecks(source, translation) {
  return KEPT_KINDS.flatMap((kind) => {
    const [missing, added] = [source, translation].map((items) => items.filter((item) => item.kind === kind).map(({ text }) => text));
    const [lost, invented] = [difference(missing, added), difference(added, missing)];
    return [
      ...lost.map((item) => [kind, item, ""]), ...invented.map((item) => [kind, "", item]),
      ...difference(missing, lost).filter((item) => BRANCHES.test(item)).map((item) => ["untranslated", item, ""]),
    ];
  });
}

/** Return the multiset difference of two lists; equal texts are adjacent in it. */
function difference(texts, removed) {
  const counts = new Map();
  for (const text of texts) counts.set(text, (counts.get(text) ?? 0) + 1);
  for (const text of removed) if (counts.has(text)) counts.set(text, counts.get(text) - 1);
  return Array.from(counts).flatMap(([text, count]) => Array(Math.max(count, 0)).fill(text));
}

// ---- numbers
/** Return the values that a number may have, as plain decimal strings: "1.234" has two. */
function valuesOf(number) {
  const digits = number.replace(/[\u00a0\u202f '\u2019]/g, "");
  const separators = digits.match(SEPARATOR) ?? [];
  const plain = digits.replace(SEPARATOR, "");
  if (!separators.length) return [trimmed(plain)];
  const lastSeparator = digits.lastIndexOf(separators.at(-1));
  const [integer, fraction] = [digits.slice(0, lastSeparator).replace(SEPARATOR, ""), digits.slice(lastSeparator + 1)];
  const decimal = trimmed(`${integer}.${fraction}`);
  if (new Set(separators).size === 2) return [decimal];
  if (separators.length > 1) return [trimmed(plain), trimmed(digits)];
  // a calibre of ".22" is often written "22"
  const mayBeInteger = !integer || (fraction.length === 3 && integer.length <= 3);
  return mayBeInteger ? [decimal, trimmed(plain)] : [decimal];
}

function trimmed(value) {
  const bare = value.replace(/^0+/, "") || "0";
  return bare.includes(".") ? bare.replace(/\.?0*$/, "") : bare;
}

/** Return the value of a digit of another script or of an exponent. */
function digitOf(digit) {
  const code = digit.normalize("NFKC").charCodeAt();
  let zero = code;
  while (isPlainNumber(String.fromCharCode(zero - 1))) zero--;
  return (code - zero) % 10;
}

const numberMatches = (text) => [...text.replace(OTHER_DIGIT, digitOf).matchAll(NUMBER)];
const numbersIn = (text) => numberMatches(text).map(([number]) => number);

/** Join numbers that are the parts of a time or a date, as in "17:45" or "31/12/2026". */
function joined(numbers, text) {
  const numberByDigits = new Map(text.match(TIME_OR_DATE)?.map((number) => [number.split(/[.:/-]/).join(), number]));
  const result = [];
  for (let index = 0; index < numbers.length;) {
    const length = [3, 2].find((count) => index + count <= numbers.length && numberByDigits.has(numbers.slice(index, index + count).join())) ?? 1;
    result.push(numberByDigits.get(numbers.slice(index, index + length).join()) ?? numbers[index]);
    index += length;
  }
  return result;
}

/** Return the numbers in digits that only one text has, and for each other one of the source its index in the translation. */
function pairedNumbers(texts) {
  const [missing, indices, targetNumbers] = [[], [], new NumberPool(numbersIn(texts[1]), valuesOf)];
  for (const number of numbersIn(texts[0])) {
    const index = targetNumbers.first(valuesOf(number));
    if (index === undefined) {
      missing.push(number);
      continue;
    }
    targetNumbers.remove(index);
    indices.push(index);
  }
  return { missing, added: targetNumbers.remaining(), indices };
}

/** Return numbers that one side lacks, in digits, words or Roman numerals. */
function numberChecks({ missing, added, indices }, texts, words) {
  if (!missing.length && !added.length) return swapChecks(texts, words, indices);
  if (isConverted(texts)) return [];
  const forward = unexplained(missing, added, texts, words, [0, 1]);
  const backward = unexplained(forward.remaining, forward.missing, texts, words, [1, 0]);
  const isLargePart = (number) => integerOf(number.replace(/\P{Nd}/gu, "")) > MAX_SMALL_NUMBER && new RegExp(words.large_number, "iu").test(texts[0]);
  return [
    ...joined(backward.remaining, texts[0]).map((number) => ["numbers", number, ""]),
    ...joined(backward.missing.filter((number) => !isLargePart(number)), texts[1]).map((number) => ["numbers", "", number]),
  ];
}

/** Whether only one text has imperial units, and the other one metric units instead. */
function isConverted(texts) {
  const [units, targetUnits] = texts.map((text) => UNITS.map((pattern) => regex(pattern, "iu").test(text)));
  return units.includes(true) && targetUnits.includes(true) && !units.some((hasUnit, index) => hasUnit && targetUnits[index]);
}

/** Return the phrases of two adjacent numbers that change places, as in "12 to 30" and "30 a 12": see checks/numbers.py. */
function swapChecks(texts, words, indices) {
  const lengthOf = (text) => text.trim().split(/\s+/).length;
  const matches = texts.map(numberMatches);
  const isShort = texts.every((text) => lengthOf(text) <= MAX_SWAP_TEXT);
  return indices.flatMap((index, first) => {
    if (index !== indices[first + 1] + 1 || !words.numbers.every((names) => Object.keys(names).length)) return [];
    const pairs = [matches[0].slice(first, first + 2), matches[1].slice(index - 1, index + 1)];
    const phrases = pairs.map(([left, right], side) => texts[side].slice(left.index, right.index + right[0].length));
    const numYears = pairs[0].filter(([number]) => YEAR.test(number)).length;
    const isClose = phrases.every((phrase) => lengthOf(phrase) <= MAX_SWAP_PHRASE);
    PARTS_OF_DATE.lastIndex = pairs[0][0].index;
    const isDate = phrases[0].includes("/") || PARTS_OF_DATE.test(texts[0]);
    return (isClose || (isShort && numYears !== 1)) && !isDate ? [["numbers", ...phrases]] : [];
  });
}

/**
 * Return the numbers that no other form in the other text explains, and the other numbers that explained none.
 *
 * `sides`: the index of the numbers' text, and of the other text.
 */
function unexplained(numbers, otherNumbers, texts, words, sides) {
  if (!numbers.length) return { missing: [], remaining: otherNumbers };
  const pool = new NumberPool(otherNumbers, keysOf);
  const [text, otherText] = sides.map((side) => texts[side]);
  const [textValues, wordValues] = sides.map((side) => valuesInWords(texts[side], words.numbers[side]));
  // a number word that translates one of this text, or an article ("a", "um"), does not explain digits
  for (const [value, count] of textValues) wordValues.set(value, Math.max((wordValues.get(value) ?? 0) - count, 0));
  const articles = wordsIn(text).filter((word) => words.articles[sides[0]].includes(folded(word)));
  wordValues.set(1, (wordValues.get(1) ?? 0) - articles.length);
  const afternoons = [text, otherText].map((sideText) => AFTERNOON.test(sideText));
  const hasWholeHours = /\p{Nd}[:h]00/u.test(text);
  const missing = numbers.filter((number) => {
    const time = sameTime(number, pool, ...afternoons);
    pool.remove(...time);
    if (time.length || (number === "00" && hasWholeHours)) return false; // "10:00" or "10h00", and "10h"
    const value = isPlainNumber(number) ? integerOf(number) : -1;
    const match = pool.first(relatedTo(value, ...afternoons));
    if (match !== undefined) {
      pool.remove(match);
      return false;
    }
    const count = wordValues.get(value) ?? 0;
    wordValues.set(value, count - 1);
    return count <= 0;
  });
  return { missing, remaining: pool.remaining() };
}

/** Numbers in the order of their text, which are looked up by keys and removed, both in constant time. */
class NumberPool {
  #numbers;
  #indices = new Map(); // by key, the last one first

  constructor(numbers, keysOf) {
    this.#numbers = [...numbers];
    for (let index = numbers.length - 1; index >= 0; index--) {
      for (const key of keysOf(numbers[index])) {
        if (!this.#indices.has(key)) this.#indices.set(key, []);
        this.#indices.get(key).push(index);
      }
    }
  }

  /** Return the index of the first remaining number with one of these keys, other than the skipped one. */
  first(keys, skipped) {
    const indices = keys.flatMap((key) => this.#firstTwo(key)).filter((index) => index !== skipped);
    return indices.length ? Math.min(...indices) : undefined;
  }

  remove(...indices) {
    for (const index of indices) this.#numbers[index] = null;
  }

  remaining() {
    return this.#numbers.filter((number) => number !== null);
  }

  /** Return the indices of the first two remaining numbers with a key; forget removed ones before them. */
  #firstTwo(key) {
    const [indices, firstTwo] = [this.#indices.get(key) ?? [], []];
    while (indices.length && firstTwo.length < 2) {
      const index = indices.pop();
      if (this.#numbers[index] !== null) firstTwo.unshift(index);
    }
    indices.push(...firstTwo);
    return firstTwo;
  }
}

/** Return what finds a number in a `NumberPool`: its form, its integer value, and its hour and minutes. */
function keysOf(number) {
  const [, hour, minutes] = TIME.exec(number) ?? [];
  return [number, ...(isPlainNumber(number) ? [integerOf(number)] : []), ...(hour ? [`${Number(hour)}:${minutes}`] : [])];
}

/** Return names that change: the value of a name on either side stands less often on the other, as "two" and "três". */
function changeChecks(kind, ...names) {
  const [missing, added] = names.map((wordsOf, side) => Array.from(wordsOf)
    .filter(([value, words]) => words.length > (names[1 - side].get(value)?.length ?? 0)).map(([, words]) => words.at(-1)));
  if (!missing?.length || !added?.length) return [];
  return [...missing.map((word) => [kind, word, ""]), ...added.map((word) => [kind, "", word])];
}

/** Return the names of each month or weekday in a text. */
function namedValues(text, valueOfName) {
  const [values, words] = [new Map(), wordsIn(text)];
  words.forEach((word, index) => {
    const name = folded(word).replaceAll("’", "'");
    const value = Object.hasOwn(valueOfName, name) && valueOfName[name];
    if (value && !(VERBS.includes(name) && !isMonth(words, index))) values.set(value, [...(values.get(value) ?? []), word]);
  });
  return values;
}

/** Return whether "May" or "March" has a capital within its sentence, or before a number, so that it isn't a verb. */
function isMonth(words, index) {
  const isWithin = index > 0 && (words[index - 1] === "," || isAlphanumeric(words[index - 1]));
  return words[index][0] !== words[index][0].toLowerCase() && (isWithin || /^\p{Nd}/u.test(words[index + 1]));
}

/** Return a word for each number from 2 to 12 in a text, without hours ("halb acht") and weekdays that the other text names. */
function smallNumbersIn(text, names, weekdayOfName, otherWeekdays) {
  const [numbers, words] = [new Map(), wordsIn(text)];
  words.map(folded).forEach((word, index, foldedWords) => {
    const value = Object.hasOwn(names, word) ? names[word] : 0;
    if (value > 1 && value <= MAX_SMALL_NUMBER && !numbers.has(value) && !HALF.includes(foldedWords[index - 1]) && !otherWeekdays?.has(weekdayOfName[word])) numbers.set(value, [words[index]]);
  });
  return numbers;
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
  const timeIndex = otherNumbers.first(hours.map((value) => `${value}:${minutes}`));
  if (timeIndex !== undefined) return [timeIndex];
  const minutesIndex = otherNumbers.first([minutes]);
  const hourIndex = otherNumbers.first(hours, minutesIndex);
  if (hourIndex === undefined || (minutesIndex === undefined && minutes !== "00")) return [];
  return minutesIndex === undefined ? [hourIndex] : [hourIndex, minutesIndex];
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

// ---- names
/** Return a name and the other name that the translation has instead, if all others are the same: see checks/names.py. */
function nameChecks(texts, patterns) {
  if (!patterns[0] || !patterns[1]) return [];
  const words = texts.map(wordsIn);
  const names = texts.map((text, side) => {
    const translated = new RegExp(`^(?:${patterns[side]})$`, "iu");
    return text.split(CELL_END).map(wordsIn)
      .filter((cell) => cell.some((word) => Array.from(word).length > 1 && isLower(word))).flatMap((cell) => namesAmong(cell, translated));
  });
  if (names[0].length !== names[1].length) return [];
  const [missing, added] = names.map((sideNames, side) => unmatched(sideNames, words[1 - side]));
  const isOne = missing.length === 1 && added.length === 1 && names[0].indexOf(missing[0]) === names[1].indexOf(added[0]);
  return isOne ? [["names", missing[0], added[0]]] : [];
}

/** Return the words with a capital within a sentence, without abbreviations, translated words and their neighbours. */
function namesAmong(words, translated) {
  const isTranslated = (word = "") => isCapital(word) && stem(word).split("-").some((part) => translated.test(part));
  return words.filter((word, index) => {
    const [letters, previous] = [Array.from(word), words[index - 1]];
    return index && letters.length >= MIN_NAME && letters.length <= MAX_NAME && isCapital(letters[0]) && /^\p{Lowercase}/u.test(letters[1])
      && (BEFORE_NAME.includes(previous) || isAlphanumeric(previous)) && ![previous, word, words[index + 1]].some(isTranslated);
  });
}

/** Return the names that neither begin like a word of the other text nor are similar to one with a capital. */
function unmatched(names, words) {
  const stems = new Set(words.map((word) => beginning(folded(word))));
  const others = names.filter((name) => !stems.has(beginning(stem(name))));
  return others.length > MAX_UNMATCHED ? others : others.filter((name) => !hasSimilar(name, words));
}

const isCapital = (letter) => /^\p{Uppercase}/u.test(letter);
const stem = (name) => folded(name.replace(/['’]s?$/u, ""));
/** Return the letters of a stem without accents, which another language may leave out. */
const lettersOfName = (name) => stem(name).normalize("NFD").replace(/\p{M}/gu, "");
const beginning = (word) => Array.from(word).slice(0, STEM).join("");

function hasSimilar(name, words) {
  const stems = new Set(words.filter((word) => isCapital(word) && Array.from(word).length <= MAX_NAME).map(lettersOfName));
  return [...stems].some((candidate) => similarity(Array.from(lettersOfName(name)), Array.from(candidate)) >= MIN_SIMILAR);
}

/** Return the share of the letters of two words that is in their longest common subsequence. */
function similarity(first, second) {
  const lengths = Array(second.length + 1).fill(0);
  for (const letter of first) {
    let diagonal = 0;
    second.forEach((other, index) => {
      const longest = letter === other ? diagonal + 1 : Math.max(lengths[index], lengths[index + 1]);
      [diagonal, lengths[index + 1]] = [lengths[index + 1], longest];
    });
  }
  return 2 * lengths.at(-1) / (first.length + second.length);
}

// ---- signs
/** Return signs, such as those of currencies, that one text lacks both as a sign and as a word. */
function signChecks(texts, signNames) {
  return Object.entries(signNames).flatMap(([sign, names]) => {
    const [isInSource, isInTarget] = texts.map((text) => text.includes(sign));
    const isNamed = (text) => names.some((name) => folded(text).includes(name));
    if (isInSource && !isInTarget && !isNamed(texts[1])) return [["signs", sign, ""]];
    return isInTarget && !isInSource && !isNamed(texts[0]) ? [["signs", "", sign]] : [];
  });
}

// ---- whole texts
/** Return the final marks of both texts, if only one of them has a question mark there, as "?" and "?!" have. */
function endCheck(texts, questionMarks) {
  const endings = texts.map((text) => LAST_MARKS.exec(text.trimEnd())?.[1] ?? "");
  const questions = endings.map((ending, side) => [...ending].find((mark) => questionMarks[side].includes(mark)));
  const marks = endings.map((ending, side) => questions[side] ?? ending.slice(-1));
  return marks.every((mark) => mark) && !questions[0] !== !questions[1] ? [["end", ...marks]] : [];
}

/**
 * Return the phrases that a translation says twice in a row, if its source has fewer such phrases.
 *
 * A phrase that the source doubles, too, such as a name or "ha ha", is not reported.
 */
function doubledChecks(...texts) {
  const [sourcePhrases, phrases] = texts.map(doubled);
  if (phrases.length <= sourcePhrases.length) return [];
  const lettersOf = (phrase) => Array.from(phrase).filter(isAlphanumeric);
  return [...new Set(difference(phrases, sourcePhrases))]
    .filter((phrase) => lettersOf(phrase).length >= MIN_DOUBLED)
    .map((phrase) => ["doubled", "", phrase]);
}

/**
 * Return the longest run of words that both texts have; only its words in lowercase count, not names.
 *
 * Fewer words are enough if the whole text is copied and ends in lowercase, as in "Print preview"; but not those of a command.
 */
function untranslatedCheck(texts, isCopy) {
  const [words, targetWords] = texts.map((side) => wordsIn(side).filter(isAlphanumeric));
  const run = longestRun(words, targetWords);
  const isCode = wordsIn(texts[0]).some((word) => CODE_MARKS.includes(word));
  const isText = isCopy && !isCode && words[1] && isLower(words.at(-1)) && words.at(-1)[2];
  if (isText || run.filter(isLower).length >= MIN_UNTRANSLATED) return [["untranslated", (isText ? words : run).join(" "), ""]];
  return [];
}

/** Return the longest run of words that both lists have. */
function longestRun(words, targetWords) {
  const targets = new Set(targetWords);
  if (new Set(words.filter((word) => targets.has(word))).size < MIN_UNTRANSLATED) return [];
  let [state, length, longest, end] = [suffixAutomaton(targetWords), 0, 0, 0];
  words.forEach((word, index) => {
    while (state.suffix && !state.next.has(word)) {
      state = state.suffix;
      length = state.length;
    }
    if (state.next.has(word)) [state, length] = [state.next.get(word), length + 1];
    if (length > longest) [longest, end] = [length, index + 1];
  });
  return words.slice(end - longest, end);
}

/** Return the first state of the automaton that reads every run of these words, in linear time: see checks/repeated_words.py. */
function suffixAutomaton(words) {
  const start = { next: new Map(), length: 0 };
  let last = start;
  for (const word of words) {
    let state = last;
    last = { next: new Map(), length: state.length + 1, suffix: start };
    while (state && !state.next.has(word)) {
      state.next.set(word, last);
      state = state.suffix;
    }
    if (!state) continue;
    let target = state.next.get(word);
    if (target.length !== state.length + 1) { // a longer run ends there, too: split the state
      const clone = { next: new Map(target.next), length: state.length + 1, suffix: target.suffix };
      target.suffix = clone;
      while (state?.next.get(word) === target) {
        state.next.set(word, clone);
        state = state.suffix;
      }
      target = clone;
    }
    last.suffix = target;
  }
  return start;
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

/** Return the negation of a text with more of them than the other has words for one, if both languages have lists. */
function negationChecks(texts, negations) {
  if (!negations) return [];
  const counts = texts.map((text, side) => negations[side].map((pattern) => text.split(new RegExp(pattern, "iu")).length));
  return texts.flatMap((text, side) => {
    const [[count, , weakCount], [, firmCount, otherCount]] = [counts[side], counts[1 - side]];
    if (count <= firmCount + Math.max(0, otherCount - weakCount)) return [];
    const [negation] = text.match(new RegExp(negations[side][0], "iu"));
    return [side ? ["negation", "", negation] : ["negation", negation, ""]];
  });
}

// ---- sentences
/** Return the numbers of sentences, if one text has more and is much longer, so that some are made up or lost. */
function sentenceChecks(...texts) {
  const lengths = texts.map((text) => Array.from(text).length);
  const isCased = (text) => {
    const letters = text.match(/\p{L}/gu) ?? [];
    return letters.filter((letter) => letter.toLowerCase() !== letter.toUpperCase()).length > 0.9 * letters.length;
  };
  if (Math.max(...lengths) <= 1.3 * Math.min(...lengths) + 20 || !texts.every(isCased)) return [];
  const counts = texts.map((text) =>
    text.split(/(?<=[\p{L}\p{N}][.!?…])[^\p{L}\p{N}_\s]*\s+[^\p{L}\p{N}_\s]*\p{Lu}/u).length);
  return (counts[1] - counts[0]) * (lengths[1] - lengths[0]) > 0 ? [["sentences", ...counts.map(String)]] : [];
}
