// Interprets the table of rules: from a user's text to its `Form`, which a model reads, and the edits between them. It
// follows text/rewriting.py; the examples of the rows hold for both. Offsets count JavaScript's units of UTF-16.

import { inSentenceCase } from "./casing.js";
import { characterOf } from "./entities.js";
import {
  BEFORE_CODE_COMMA_PATTERN, BLOCK_TAG_PATTERN, BREAK, ITEM, LACKED, MAX_RANK_OF_REPEATED, ROMAN_WORD_PATTERN,
  ROWS, SIGN_PAIRS, SIGNED_NUMBER_PATTERN, WORD_BEGINS_PATTERN,
} from "./interface.js";
import { regex } from "./patterns.js";
import { combines, MAX_CACHED_LENGTH, visible } from "./vocabulary.js";
import { isUpper, lastUpTo } from "./words.js";

const [COPY, [LACKED_LETTER, LACKED_SIGN, LACKED_FORMULA]] = ["=", LACKED];
const [LINE, BLOCK] = ["\\n", ""].map((end) => regex(`[^\\s${BREAK}][^${end}${BREAK}]*`, "gu"));
const IN_WORD = /(?<=[\p{L}\p{N}])[&@](?=[\p{L}\p{N}])/gu; // "AT&T"; but the star of "Lehrer*innen" leaves a word
const COMBINING_MARK = "\u0301"; // in the copy of a form for late rows, each mark that combines
const [BLOCK_TAG, ROMAN_WORD] = [BLOCK_TAG_PATTERN, ROMAN_WORD_PATTERN].map((source) => regex(`^(?:${source})`));
const [SENTENCE_START, BEFORE_CODE_COMMA] = [WORD_BEGINS_PATTERN, BEFORE_CODE_COMMA_PATTERN].map((source) => regex(source));
const [REACH, MAX_CODE] = [16, 64]; // characters before a word, and before a comma
const pointOf = (grouping) => (grouping === "," ? "." : ",");
const numberPatterns = {}; // by the grouping sign
/** Return the pattern of a number with the signs of a language. */
const numberPattern = (grouping) => (numberPatterns[grouping] ??= matching(SIGNED_NUMBER_PATTERN, grouping));

/** Return what a row matches as a pattern. */
function matching(match, grouping = "") {
  const values = { lacked: `[${LACKED.join("")}]`, formula: LACKED_FORMULA, group: grouping || "\0", point: pointOf(grouping) };
  return regex(match.replace(/<(lacked|formula|group|point)>/g, (_, name) => values[name]), "gu");
}

const TABLE = ROWS.map(([stage, kind, model, id, needs, match, back, when]) => (
  { id, stage, kind, needs: regex(needs), pattern: matching(match), model, back, when }));
export const rowsOf = (...stages) => TABLE.filter(({ stage }) => stages.includes(stage));
const [FIRST_ROWS, LATE_ROWS] = [rowsOf("keep", "form"), rowsOf("late")];
const BEFORE_ROWS = rowsOf("before").map((row) => ({ ...row, pattern: new RegExp(row.pattern, "uy") }));
export const LATE_NAMES = LATE_ROWS.map(({ id }) => id);
const KIND_OF = new Map(TABLE.map(({ id, kind }) => [id, kind]));

/** Of an edit: whether the model reads it and the translation copies it, or the translation alone; and its kind. */
export const isItem = ({ model }) => model === null;
export const isTag = ({ model, back }) => model !== null && back !== null;
export const kindOf = ({ row }) => KIND_OF.get(row) ?? "";
export const inForm = ({ model }) => model ?? ITEM;

/**
 * A text with edits applied, and the way back of offsets.
 *
 * `source`: the user's text; `edits`: { row, start, end, model, back }, in order, none overlaps another; `text`: in which an
 * item is one `ITEM`; `kinds`: what is kept, if anything is; `lines`: the user's lines in another case than that of a
 * sentence, which is the `row` of each.
 */
export class Form {
  constructor(source, edits = [], kinds = []) {
    Object.assign(this, { source, edits, kinds, lines: [], offsets: [], starts: edits.map(({ start }) => start), text: "" });
    let end = 0;
    for (const edit of edits) {
      this.text += source.slice(end, edit.start);
      this.offsets.push(this.text.length);
      this.text += inForm(edit);
      ({ end } = edit);
    }
    this.text += source.slice(end);
  }

  /**
   * Return the form with edits of `text`, which replace the edits of the user's text inside them.
   *
   * An item that cuts an edit, as a lacked letter before a number does, takes it in; other edits that cut one go.
   */
  withFurther(edits) {
    const merged = [];
    let [text, index, end] = ["", 0, 0]; // letters may have another case than those of the source
    for (const edit of edits) {
      const [start, stop] = this.userSpan([edit.start, edit.end]);
      const [first, last] = [start, stop].map((offset) => this.offsetOf(offset));
      if (first < end || ((first < edit.start || last > edit.end) && !isItem(edit))) continue;
      while (this.edits[index]?.end <= start) merged.push(this.edits[index++]);
      while (this.starts[index] < stop) index++;
      merged.push({ ...edit, start, end: stop });
      text += this.text.slice(end, first) + inForm(edit);
      end = last;
    }
    const form = new Form(this.source, [...merged, ...this.edits.slice(index)]);
    return Object.assign(form, { text: text + this.text.slice(end), lines: this.lines });
  }

  /** Return the span of the user's text behind a span of `text`; edits are never cut. */
  userSpan([start, end]) {
    const first = this.#userOffset(start, 0);
    return [first, start < end ? this.#userOffset(end - 1, 1) : first];
  }

  /** Return the offset in `text` of a character of the user's text, or of the edit that it is in. */
  offsetOf(userOffset) {
    const index = lastUpTo(this.starts, userOffset);
    if (index < 0) return userOffset;
    const [edit, offset] = [this.edits[index], this.offsets[index]];
    return userOffset < edit.end ? offset : offset + inForm(edit).length + userOffset - edit.end;
  }

  /** Return the user's offset of a character of `text`, or of its end. */
  #userOffset(offset, isEnd) {
    const index = lastUpTo(this.offsets, offset);
    if (index < 0) return offset + isEnd;
    const edit = this.edits[index];
    const past = offset - this.offsets[index] - inForm(edit).length;
    return past >= 0 ? edit.end + past + isEnd : isEnd ? edit.end : edit.start;
  }

  /** Return the items in a span of `text`, and the tags in it and at its edges, each with its offset. */
  copiesIn([start, end]) {
    const [first, last] = [lastUpTo(this.offsets, start - 1) + 1, lastUpTo(this.offsets, end)];
    return this.edits.slice(first, last + 1).map((edit, index) => ({ offset: this.offsets[first + index], edit }))
      .filter(({ offset, edit }) => edit.back !== null && offset + inForm(edit).length <= end);
  }
}

/**
 * Return the form of a text, after all stages.
 *
 * `call`: the vocabulary, the rules of the language, the signs in numbers of both languages; `kinds`: what is kept; `copies`: rules
 * about numbers, case and sentences apply; `normalises`: the model reads plain forms.
 */
export function formOf(text, { vocabulary, rules, groupings, kinds, copies, normalises, splits = true }) {
  const call = { vocabulary, kinds, normalises, copies, splits, hasOrdinals: rules?.has_ordinals, groupings: copies ? groupings : ["", ""] };
  const edits = editsIn(text, FIRST_ROWS.filter((row) => isTried(row, text, call)), call);
  let form = new Form(text, edits);
  if (copies) {
    const { text: cased, lines } = inSentenceCase(form.text, vocabulary, rules);
    form.text = cased;
    form.lines = lines.map(({ span, case: row }) => {
      const [start, end] = form.userSpan(span);
      return { row, start, end, model: cased.slice(...span), back: null };
    });
  }
  const late = normalises ? lateEdits(form, call) : [];
  if (late.length) form = form.withFurther(late);
  if (!copies || [...edits, ...late].some(({ back }) => back !== null)) form.kinds = kinds;
  return form;
}

/** Return whether a row is tried; `when`: "lacks" and a character that the vocabulary must not have. */
function isTried({ stage, kind, needs, when }, text, { vocabulary, kinds, normalises }) {
  return (stage === "keep" ? kinds.includes(kind) : normalises) && needs.test(text) && !(when && vocabulary.covers(when.at(-1)));
}

/**
 * Return the edits of rows in a span of a text: of the leftmost matches, the first row's.
 *
 * `shadow`: what patterns see of the text; `at`: returns the offset in the text of a unit of the shadow; `writtenIn`: what the
 * user wrote in a span of the text.
 */
function editsIn(text, rows, call, [start, end] = [0, text.length], { shadow = text, at = (offset) => offset, writtenIn = (span) => text.slice(...span) } = {}) {
  const [edits, part, patterns] = [[], shadow.slice(0, end), rows.map(({ pattern }) => pattern)];
  const search = (index, offset) => {
    patterns[index].lastIndex = offset;
    const match = patterns[index].exec(part);
    return match && { first: match.index, last: match.index + match[0].length };
  };
  for (let matches = rows.map((_, index) => search(index, start)); ;) {
    const leftmost = matches.reduce((best, match, index) => (match && !(matches[best]?.first <= match.first) ? index : best), -1);
    if (leftmost < 0) return edits;
    const [row, { first, last }] = [rows[leftmost], matches[leftmost]];
    const further = row.model === ":emphasis" ? emphasised(text, rows, call, [first, last]) : editAt(text, row, call, [at(first), at(last)], writtenIn);
    edits.push(...further);
    matches = matches.map((match, index) => (index === leftmost || (further.length && match?.first < last) ? search(index, Math.max(last, first + 1)) : match));
  }
}

/** Return the edit of a match; none if the model reads the match itself: then other rows may match there. */
function editAt(text, { id, stage, model, back }, call, [start, end], writtenIn) {
  const read = model[0] === ":" ? FUNCTIONS[model.slice(1)](call, text, [start, end]) : model;
  if (read === null || (back !== COPY && read === text.slice(start, end))) return [];
  const edit = { row: id, start, end, model: read === COPY ? null : read, back: null };
  if (back === COPY) edit.back = stage === "late" ? visible(writtenIn([start, end])) : writtenIn([start, end]);
  if (back === ":target_signs") edit.back = withTargetSigns(writtenIn([start, end]), call.groupings);
  return [edit];
}

/** Return the marks of emphasis around a text, such as "**", and the edits between them. */
function emphasised(text, rows, call, [start, end]) {
  const [back] = /^(.)\1*/.exec(text.slice(start, end));
  const [mark, first, last] = [{ row: "emphasis", model: "", back }, start + back.length, end - back.length];
  return [{ ...mark, start, end: first }, ...editsIn(text, rows, call, [first, last]), { ...mark, start: last, end }];
}

/** Return the edits of a form for characters that the vocabulary lacks; what they copy is as the user wrote it. */
function lateEdits(form, call) {
  const lacked = call.vocabulary.lacked(form.text);
  if (!lacked.size) return [];
  let [shadow, end] = ["", 0];
  const offsets = []; // in the form, of each unit of the shadow: a lacked character has one, as in Python
  const inWords = new Set(Array.from(form.text.matchAll(IN_WORD), ({ index }) => index));
  const matches = call.copies ? form.text.matchAll(call.splits ? LINE : BLOCK) : [];
  const lines = Array.from(matches, ({ 0: line, index }) => [index, index + line.length]);
  const listMarks = lines.map((line) => [line[0], endOfMarks(form.text, line, call.hasOrdinals)]).reverse();
  for (const character of form.text) {
    while (listMarks.at(-1)?.[1] <= end) listMarks.pop(); // the edges copy them
    const isLacked = lacked.has(character) && !(listMarks.at(-1)?.[0] <= end);
    const mark = isLacked ? (inWords.has(end) ? LACKED_LETTER : lackedMark(character)) : combines(character) ? COMBINING_MARK : character;
    for (let unit = 0; unit < mark.length; unit++) offsets.push(end + unit);
    shadow += mark;
    end += character.length;
  }
  offsets.push(end);
  const rows = LATE_ROWS.filter(({ kind }) => !kind || call.kinds.includes(kind));
  const writtenIn = (span) => form.source.slice(...form.userSpan(span));
  return editsIn(form.text, rows, call, [0, shadow.length], { shadow, at: (offset) => offsets[offset], writtenIn });
}

/** Return where the list marks before a sentence, or a line, end. `hasOrdinals`: "3." may belong to it. */
export function endOfMarks(text, [start, end], hasOrdinals) {
  const part = text.slice(0, end);
  let offset = start;
  for (const { pattern, when } of BEFORE_ROWS) {
    pattern.lastIndex = offset;
    const match = when === "no ordinals" && hasOrdinals ? null : pattern.exec(part);
    if (match && !(when === "unpaired" && hasPair(match[0], text.slice(offset, end)))) offset += match[0].length;
  }
  return offset;
}

/** Whether some of the signs may be one of a pair of brackets or quotes in the sentence. */
export function hasPair(signs, sentence) {
  return SIGN_PAIRS.some((pair) => [...pair].some((sign) => signs.includes(sign)) && [...pair].every((sign) => sentence.includes(sign)));
}

function lackedMark(character) {
  if (/[\p{L}\p{N}_]/u.test(character)) return LACKED_LETTER;
  return /[\p{Sm}&*@^]/u.test(character) ? LACKED_FORMULA : LACKED_SIGN;
}

// ---- functions that rows name: what the model reads, `COPY`, or null
const FUNCTIONS = {
  tag: (_, text, span) => (BLOCK_TAG.test(text.slice(...span)) ? BREAK : ""),
  /** Return a capitalised word that the vocabulary lacks in lowercase or without accents, if it knows it so. */
  lowered({ vocabulary }, text, [start, end]) {
    const word = text.slice(start, end);
    const letters = Array.from(word);
    if (!isUpper(letters[0])) return null;
    const lowered = letters[0].toLowerCase() + letters.slice(1).join("");
    const unaccented = letters.map((letter) => (vocabulary.covers(letter) ? letter : Array.from(letter.normalize("NFD"))[0])).join("");
    const begins = SENTENCE_START.test(text.slice(Math.max(start - REACH, 0), start));
    // inside a sentence a capitalised word is a name, which is copied rather than changed
    const isKnown = (form) => vocabulary.hasPiece(form) || (begins && form === lowered && vocabulary.covers(form));
    const candidates = [lowered, word.toLowerCase(), letters[1] ? unaccented : word]; // A would not stand for Å
    return candidates.find((form) => form.length === word.length && isKnown(form)) ?? null;
  },
  entity({ vocabulary }, text, [start, end]) {
    const character = characterOf(text.slice(start, end));
    if (!character) return null;
    const form = vocabulary.form(character);
    const isInWord = /\p{L}$/u.test(text.slice(0, start).slice(-2)) && /^\p{L}/u.test(text.slice(end, end + 2));
    return character === "—" && form !== character && isInWord ? " - " : form;
  },
  comma: (_, text, [start]) => (BEFORE_CODE_COMMA.test(text.slice(Math.max(start - MAX_CODE, 0), start)) ? null : ", "),
  plain: ({ vocabulary }, text, span) => vocabulary.form(text.slice(...span)),
  /** Return a letter once or twice instead of more often, whichever makes the more frequent word. */
  fewer({ vocabulary }, text, [start, end]) {
    const [before, after] = [text.slice(Math.max(start - MAX_CACHED_LENGTH, 0), start), text.slice(end, end + MAX_CACHED_LENGTH)];
    const [[left], [right], letters] = [/[\p{L}\p{N}_]*$/u.exec(before), /^[\p{L}\p{N}_]*/u.exec(after), text.slice(start, end)];
    const isCode = before.slice(0, before.length - left.length).endsWith("#"); // as in "&#xfffe;"
    const isAcronym = letters.length === 3 && isUpper(letters); // as in "IEEE"
    if (isCode || isAcronym || !/^\p{L}+$/u.test(left + right) || ROMAN_WORD.test(left + letters + right)) return null;
    const parts = [left, right].map((part) => part.replace(/([a-zA-Z])\1{2,}/g, "$1"));
    const rankOf = (form) => vocabulary.logRank(parts.join(form).toLowerCase());
    const [once, twice] = [letters[0], letters.slice(0, 2)];
    const form = rankOf(twice) < rankOf(once) ? twice : once;
    const mayBeCompound = letters.length === 3 && left && right; // of German: "Missstand"
    return mayBeCompound && rankOf(form) > MAX_RANK_OF_REPEATED ? null : form;
  },
};

/** Return a text with the signs of the target language in its numbers, or in those that `isConverted` accepts. */
export function withTargetSigns(text, groupings, isConverted = () => true) {
  if (!groupings.every(Boolean)) return text;
  const [point, targetPoint] = groupings.map(pointOf);
  return text.replace(numberPattern(groupings[0]), (number) => {
    if (!isConverted(number)) return number;
    const signs = number.replace(/\p{Nd}/gu, "");
    const last = signs.at(-1);
    const hasDecimals = ".,".includes(last) && (last === point || last !== signs[0]);
    let left = signs.length;
    return number.replace(/\P{Nd}/gu, () => (!--left && hasDecimals ? targetPoint : groupings[1]));
  });
}

/** Return the edits of the keep rows of these kinds. */
export function keepEdits(text, kinds) {
  const rows = FIRST_ROWS.filter(({ stage, kind, needs }) => stage === "keep" && kinds.includes(kind) && needs.test(text));
  return editsIn(text, rows, { groupings: ["", ""] });
}

/** Return the items of a text that a translation keeps, by the keep rows of these kinds: their texts, spans and kinds. */
export function itemsIn(text, kinds) {
  return keepEdits(text, kinds).map((edit) => ({ text: text.slice(edit.start, edit.end), start: edit.start, end: edit.end, kind: kindOf(edit) }));
}

/** Return a text with other text for its items. */
export function withItems(text, kinds, change) {
  let [output, end] = ["", 0];
  for (const item of itemsIn(text, kinds)) {
    output += text.slice(end, item.start) + change(item);
    ({ end } = item);
  }
  return output + text.slice(end);
}

/** Return a given translation as the model reads it: without tags. */
export function withoutTags(translation) {
  const text = withItems(translation, ["tags"], ({ text: tag }) => (BLOCK_TAG.test(tag) ? " " : ""));
  return text === translation ? text : text.trim();
}

/** Return a text, in its form if the vocabulary lacks any of its characters. */
export const knownForm = (text, vocabulary) => (
  vocabulary.lacked(text).size ? formOf(text, { vocabulary, kinds: [], copies: false, normalises: true }).text : text);
