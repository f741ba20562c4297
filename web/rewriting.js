// Interprets the table of rules: from a user's text to its `Form`, which a model reads, and the edits between them. It
// follows text/rewriting.py; the examples of the rows hold for both. Offsets count JavaScript's units of UTF-16.

import { inSentenceCase } from "./casing.js";
import { characterOf } from "./entities.js";
import { MAX_QUOTE, MAX_RANK_OF_REPEATED, PATTERNS, RULES } from "./interface.js";
import { combines, MAX_CACHED_LENGTH, visible } from "./vocabulary.js";
import { isUpper, lastUpTo } from "./words.js";

export const [ITEM, BREAK, COPY] = [RULES.item, RULES.break, "="];
const [LACKED_LETTER, LACKED_SIGN, LACKED_FORMULA] = RULES.lacked;
const COMBINING_MARK = "\u0301"; // in the copy of a form for late rows, each mark that combines
export const rowsOf = (...stages) => RULES.rows.filter(({ stage }) => stages.includes(stage)).map((row) => ({ ...row, ...patternsOf(row) }));
const [FIRST_ROWS, LATE_ROWS] = [rowsOf("keep", "form"), rowsOf("late")];
export const LATE_NAMES = LATE_ROWS.map(({ id }) => id);
const ANY_NEED = new RegExp([...new Set(FIRST_ROWS.map(({ needs }) => needs.source))].join("|"), "u");
const KIND_OF = new Map([...FIRST_ROWS, ...LATE_ROWS].map(({ id, kind }) => [id, kind]));
const [BLOCK_TAG, ROMAN_WORD] = [RULES.block_tag, PATTERNS.ROMAN_WORD].map((source) => new RegExp(`^(?:${source})`, "u"));
const [SENTENCE_START, BEFORE_CODE_COMMA, EMOJI] = [PATTERNS.WORD_BEGINS, PATTERNS.BEFORE_CODE_COMMA, PATTERNS.EMOJI].map((source) => new RegExp(source, "u"));
const [REACH, MAX_CODE] = [16, 64]; // characters before a word, and before a comma
const numberPatterns = new Map(); // by the grouping sign

function patternsOf({ needs, match, id }) {
  const lacked = `[${LACKED_LETTER}${LACKED_SIGN}${LACKED_FORMULA}]`;
  const source = match.replaceAll("<lacked>", lacked).replaceAll("<formula>", LACKED_FORMULA);
  return { needs: new RegExp(needs, "u"), pattern: match.includes("<group>") ? null : new RegExp(source, "gu"), id };
}

/** Return the pattern of a number with the signs of a language. */
function numberPattern(grouping) {
  if (!numberPatterns.has(grouping)) {
    const source = RULES.signed_number.replaceAll("<group>", grouping || "\0").replaceAll("<point>", grouping === "," ? "." : ",");
    numberPatterns.set(grouping, new RegExp(source, "gu"));
  }
  return numberPatterns.get(grouping);
}

/** Of an edit: whether the model reads it and the translation copies it, or the translation alone; and its kind. */
export const isItem = ({ model }) => model === null;
export const isTag = ({ model, back }) => model !== null && back !== null;
export const kindOf = ({ row }) => KIND_OF.get(row) ?? "";
const inForm = ({ model }) => model ?? ITEM;

/**
 * A text with edits applied, and the way back of offsets.
 *
 * `source`: the user's text; `edits`: { row, start, end, model, back }, in order, none overlaps another; `text`: in which an
 * item is one `ITEM`; `kinds`: what is kept, if anything is; `lines`: spans of the user's lines in another case than that of a sentence, and
 * their case.
 */
export class Form {
  constructor(source, edits = [], kinds = []) {
    Object.assign(this, { source, edits, kinds, lines: [], offsets: [], text: source });
    const parts = [];
    let [end, length] = [0, 0];
    for (const edit of edits) {
      length += edit.start - end;
      this.offsets.push(length);
      parts.push(source.slice(end, edit.start), inForm(edit));
      [length, end] = [length + inForm(edit).length, edit.end];
    }
    if (edits.length) this.text = parts.join("") + source.slice(end);
  }

  /**
   * Return the form with edits of `text`, which replace the edits of the user's text inside them.
   *
   * An item that cuts an edit, as a lacked letter before a number does, takes it in; other edits that cut one go.
   */
  withFurther(edits) {
    const [merged, parts] = [[], []];
    let [index, end] = [0, 0];
    for (const edit of edits) {
      const [first, last] = this.#uncut(edit.start, edit.end);
      if (first < end || ((first < edit.start || last > edit.end) && edit.model !== null)) continue;
      const [start, stop] = this.userSpan([first, last]);
      while (this.edits[index]?.end <= start) merged.push(this.edits[index++]);
      while (this.edits[index]?.start < stop) index++;
      merged.push({ ...edit, start, end: stop });
      parts.push(this.text.slice(end, first), inForm(edit));
      end = last;
    }
    const text = parts.join("") + this.text.slice(end); // other letters may have another case
    return Object.assign(new Form(this.source, [...merged, ...this.edits.slice(index)], this.kinds), { text, lines: this.lines });
  }

  /** Return a span of `text` with the whole of the edits at its edges. */
  #uncut(start, end) {
    for (const index of new Set([lastUpTo(this.offsets, start), lastUpTo(this.offsets, end - 1)])) {
      const [first, last] = [this.offsets[index], this.offsets[index] + (index < 0 ? 0 : inForm(this.edits[index]).length)];
      if (first < end && start < last) [start, end] = [Math.min(start, first), Math.max(end, last)];
    }
    return [start, end];
  }

  /** Return the span of the user's text behind a span of `text`; edits are never cut. */
  userSpan([start, end]) {
    const first = this.#userOffset(start, 0);
    return [first, start < end ? this.#userOffset(end - 1, 1) : first];
  }

  /** Return the offset in `text` of a character of the user's text, or of the edit that it is in. */
  offsetOf(userOffset) {
    const index = lastUpTo(this.edits.map(({ start }) => start), userOffset);
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

  /** Return the case of the user's line at an offset of the user's text; null for sentence case. */
  caseAt(offset) {
    const line = this.lines[lastUpTo(this.lines.map(({ start }) => start), offset)];
    return offset < line?.end ? line.case : null;
  }
}

/** What a call decides about the table. */
export class Rewriter {
  /** `kinds`: what is kept; `copies`: rules about numbers, case and sentences apply; `normalises`: the model reads plain forms. */
  constructor(vocabulary, rules, groupings, { kinds = RULES.kinds.copied, copies = true, normalises = true } = {}) {
    Object.assign(this, { vocabulary, rules, kinds, copies, normalises, groupings: copies ? groupings : ["", ""] });
  }

  /** Return the form of a text, after all stages. */
  read(text) {
    const edits = this.#firstEdits(text);
    const keeps = (list) => list.some(({ back }) => back !== null);
    let form = new Form(text, edits, !this.copies || keeps(edits) ? this.kinds : []);
    if (this.copies) {
      const { text: cased, lines } = inSentenceCase(form.text, this.vocabulary, this.rules);
      form.text = cased;
      form.lines = lines.map(({ start, end, case: name }) => {
        const [first, stop] = form.userSpan([start, end]);
        return { start: first, end: stop, case: name };
      });
    }
    const late = this.normalises ? this.#lateEdits(form) : [];
    return late.length ? Object.assign(form.withFurther(late), keeps(late) && { kinds: this.kinds }) : form;
  }

  #firstEdits(text) {
    return ANY_NEED.test(text) ? this.#edits(text, FIRST_ROWS.filter((row) => this.#isTried(row, text)), text) : []; // most texts have no need
  }

  /** Return the edits of the keep rows. */
  keepEdits(text) {
    return this.#edits(text, FIRST_ROWS.filter(({ stage, kind, needs }) => stage === "keep" && this.kinds.includes(kind) && needs.test(text)), text);
  }

  #isTried({ stage, kind, needs, when }, text) {
    if (stage === "keep" ? !this.kinds.includes(kind) : !this.normalises) return false;
    if (!needs.test(text)) return false;
    if (!when) return true;
    if (when.startsWith("lacks")) return !this.vocabulary.covers(Array.from(when).at(-1));
    return when === "grouping" ? this.groupings[0] !== "" : this.groupings.every(Boolean);
  }

  /** Return the edits of rows in a span; `shadow`: what the patterns see of the text, `offsets`: where each unit stands. */
  #edits(text, rows, shadow, start = 0, end = text.length, offsets = null) {
    return this.#scanned(text, rows, shadow, start, end, offsets).flatMap((match) => (
      match.row.model === ":emphasis" ? this.#emphasised(text, rows, match) : [this.#edit(text, match)]));
  }

  /** Return the matches of rows, from left to right; of those that begin at one offset, the first row's. */
  #scanned(text, rows, shadow, start, end, offsets) {
    const [spans, part] = [[], shadow.slice(0, end)];
    const patterns = rows.map(({ pattern }) => pattern ?? numberPattern(this.groupings[0]));
    const next = (index, offset) => {
      patterns[index].lastIndex = offset;
      const match = patterns[index].exec(part);
      if (!match) return match;
      const [from, to] = [match.index, match.index + match[0].length];
      return { row: rows[index], from, to, start: offsets?.[from] ?? from, end: offsets?.[to] ?? to };
    };
    const matches = rows.map((_, index) => next(index, start));
    for (;;) {
      const first = matches.reduce((best, match, index) => (match && !(matches[best]?.from <= match.from) ? index : best), -1);
      if (first < 0) return spans;
      const match = { ...matches[first], model: this.#modelOf(text, matches[first]) };
      if (match.model === null) {
        matches[first] = next(first, Math.max(match.to, match.from + 1));
        continue;
      }
      spans.push(match);
      matches.forEach((candidate, index) => {
        if (candidate?.from < match.to) matches[index] = next(index, match.to);
      });
    }
  }

  /** Return what the model reads of a match; null if that is the match itself: then other rows may match there. */
  #modelOf(text, { row, start, end }) {
    if (row.model[0] !== ":" || row.model === ":emphasis") return row.model;
    const model = FUNCTIONS[row.model.slice(1)](this, text, [start, end]);
    return model === text.slice(start, end) && row.stage !== "keep" && row.back !== COPY ? null : model;
  }

  #edit(text, { row, start, end, model }) {
    const content = text.slice(start, end);
    let back = row.back === ":target_signs" ? withTargetSigns(content, this.groupings) : null;
    if (row.back === COPY && (row.stage === "keep" || model === COPY || model === "")) back = content;
    return { row: row.id, start, end, model: model === COPY ? null : model, back };
  }

  /** Return the marks of emphasis around a text, such as "**", and the edits between them. */
  #emphasised(text, rows, { start, end }) {
    const content = text.slice(start, end);
    const length = Math.min(...[/^(.)\1*/, /([*_~])\1*$/].map((run) => run.exec(content)[0].length));
    // a blank to fill in, as in "My name is ____"; a mark around nothing would be dropped
    if (length === content.length) return [{ row: "lacked sign", start, end, model: "", back: content }];
    const mark = { row: "emphasis", model: "", back: content.slice(0, length) };
    const inner = this.#edits(text, rows, text, start + length, end - length);
    return [{ ...mark, start, end: start + length }, ...inner, { ...mark, start: end - length, end }];
  }

  /** Return the edits of a form for characters that the vocabulary lacks; what they copy is as the user wrote it. */
  #lateEdits(form) {
    const lacked = this.vocabulary.lacked(form.text);
    if (!lacked.size) return [];
    const markOf = (character) => (lacked.has(character) ? lackedMark(character) : combines(character) ? COMBINING_MARK : character);
    const characters = Array.from(form.text);
    const shadow = characters.map(markOf).join("");
    const offsets = shadow.length < form.text.length ? offsetsOf(characters, markOf) : null;
    const rows = LATE_ROWS.filter(({ kind }) => !kind || this.kinds.includes(kind));
    return this.#edits(form.text, rows, shadow, 0, shadow.length, offsets).map((edit) => {
      if (edit.back === null) return edit;
      const written = form.source.slice(...form.userSpan([edit.start, edit.end]));
      const isCopied = RULES.rows.find(({ id }) => id === edit.row).back === COPY;
      return { ...edit, back: isCopied ? visible(written) : withTargetSigns(written, this.groupings) };
    });
  }
}

/** Return a mark for a lacked character, of one unit of UTF-16 as in Python. */
function lackedMark(character) {
  if (/[\p{L}\p{N}_]/u.test(character)) return LACKED_LETTER;
  return /\p{Sm}/u.test(character) ? LACKED_FORMULA : LACKED_SIGN;
}

/** Return the offset in a text of each unit of its marks, and the end of the text. */
function offsetsOf(characters, markOf) {
  const offsets = [];
  let end = 0;
  for (const character of characters) {
    for (let unit = 0; unit < markOf(character).length; unit++) offsets.push(end + unit);
    end += character.length;
  }
  return [...offsets, end];
}

// ---- functions that rows name: what the model reads, `COPY`, or null
const FUNCTIONS = {
  tag: (_, text, span) => (BLOCK_TAG.test(text.slice(...span)) ? BREAK : ""),
  sign: () => "",
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
  last_character: (_, text, [, end]) => text[end - 1],
  /** Return nothing for a space inside of guillemets that point outwards and have one on both sides. */
  inner_space(_, text, [start, end]) {
    const isPaired = text[start - 1] === "«" ? /^[^«»\n]*[ \xa0\u202f]»/.test(text.slice(end, end + MAX_QUOTE))
      : /«[ \xa0\u202f][^«»\n]*$/.test(text.slice(Math.max(start - MAX_QUOTE, 0), start));
    return isPaired ? "" : null;
  },
  /** Return a number with two signs as the target language writes it; with one, models write it themselves. */
  signed({ groupings }, text, span) {
    const number = text.slice(...span);
    return number.match(/\P{Nd}/gu).length > 1 ? withTargetSigns(number, groupings) : null;
  },
  /** Return a number of one group with the source language's sign, unless it is copied with an unknown neighbour. */
  grouped({ vocabulary, groupings }, text, [start, end]) {
    const [left, right] = [text.slice(Math.max(start - 4, 0), start), text.slice(end, end + 4)].map((side) => Array.from(side));
    const isRead = [...left.slice(-2), ...right.slice(0, 2)].every((character) => vocabulary.reads(character) || EMOJI.test(character));
    return isRead ? `${text.slice(start, end - 4)}${groupings[0]}${text.slice(end - 3, end)}` : null;
  },
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
  const [[, point], [targetGroup, targetPoint]] = groupings.map((grouping) => [grouping, grouping === "," ? "." : ","]);
  return text.replace(numberPattern(groupings[0]), (number) => {
    if (!isConverted(number)) return number;
    const signs = number.replace(/\p{Nd}/gu, "");
    const last = signs.at(-1);
    const hasDecimals = ".,".includes(last) && (last === point || last !== signs[0]);
    let left = signs.length;
    return number.replace(/\P{Nd}/gu, () => (!--left && hasDecimals ? targetPoint : targetGroup));
  });
}

const readers = new Map(); // by their kinds

/** Return the edits of the keep rows of these kinds. */
export function keepEdits(text, kinds) {
  const key = kinds.join();
  if (!readers.has(key)) readers.set(key, new Rewriter(null, {}, ["", ""], { kinds, copies: false, normalises: false })); // no row asks the vocabulary
  return readers.get(key).keepEdits(text);
}

/** Return the items of a text that a translation keeps, by the keep rows of these kinds: their texts, spans and kinds. */
export function itemsIn(text, kinds) {
  return keepEdits(text, kinds).map((edit) => ({ text: text.slice(edit.start, edit.end), start: edit.start, end: edit.end, kind: kindOf(edit) }));
}

/** Return a text with other text for what is outside of its items, or for the items. */
export function withItems(text, kinds, change, changeItem = (item) => item.text) {
  let [output, end] = ["", 0];
  for (const item of itemsIn(text, kinds)) {
    output += change(text.slice(end, item.start)) + changeItem(item);
    ({ end } = item);
  }
  return output + change(text.slice(end));
}

/** Return a given translation as the model reads it: without tags. */
export function withoutTags(translation) {
  const text = withItems(translation, ["tags"], (part) => part, ({ text: tag }) => (BLOCK_TAG.test(tag) ? " " : ""));
  return text === translation ? text : text.trim();
}

/** Return a text, in its form if the vocabulary lacks any of its characters. */
export function knownForm(text, vocabulary) {
  return vocabulary.lacked(text).size ? new Rewriter(vocabulary, {}, ["", ""], { kinds: [], copies: false }).read(text).text : text;
}

/** Whether a text has nothing to translate: no letters outside URLs, tags, placeholders and code. */
export const lacksWords = (text) => !/\p{L}/u.test(text) || !/\p{L}/u.test(withItems(text, RULES.kinds.non_words, (part) => part, () => " "));
