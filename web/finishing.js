// What a translation has of its source besides items: signs of copied numbers, a label's form, the ending, quotes, the
// typography of the target language, case, entities; in this order, each step once. It follows text/finishing.py.
//
// The model's file has the typography: `quotes`, the opening and the closing mark; `colon`, of labels; `spaces`: whether marks
// have the spaces of French; `dotless_i`: see casing.js.

import { capital, capitalised, restoredCase } from "./casing.js";
import { doubled } from "./coverage.js";
import { withEntities, withoutEntities } from "./entities.js";
import {
  CLOSING_QUOTE_PATTERN, COPIED_KINDS, FINAL_MARK_PATTERN, ITEM, LABEL_COLON_PATTERN, LABEL_END_PATTERN, OPENING_QUOTE_PATTERN, PLAIN,
  TAG_MARK,
} from "./interface.js";
import { regex } from "./patterns.js";
import { Form, isTag, keepEdits, rowsOf, withTargetSigns } from "./rewriting.js";
import { firstOf, folded, isAlphanumeric, isUpper, lastOf } from "./words.js";

const MARKS = new RegExp(`[${ITEM}${TAG_MARK}]`, "g");
const [FINAL_MARK, LABEL_END, LABEL_COLON] = [FINAL_MARK_PATTERN, LABEL_END_PATTERN, `^${LABEL_COLON_PATTERN}`].map((source) => regex(source));
const [OPENING_QUOTE, CLOSING_QUOTE] = [OPENING_QUOTE_PATTERN, CLOSING_QUOTE_PATTERN].map((source) => regex(source, "uy"));
const [{ pattern: FRENCH }] = rowsOf("back");
const isTypographic = (mark) => mark !== "" && PLAIN['"'].includes(mark);
const FIRST_LETTER = /[\p{L}\p{N}]/u;

/** Return the translation of a piece with the form of its source, as its own language has it. */
export function finished(text, piece, { vocabulary, groupings, typography }) {
  const { userText, isLabel, ending, sourceCase } = piece;
  const { quotes, spaces, dotless_i: dotlessI } = typography;
  return withEntities(outsideItems(text, (marked) => {
    let output = withCopiedNumbers(marked, piece.text, groupings);
    if (isLabel) output = asLabel(output, userText, dotlessI);
    else if (piece.hasLowercasedFirst) output = capitalised(output, dotlessI);
    if (ending !== null) output = withEnding(output, ending);
    output = withQuotes(output, typographicQuotesOf(piece), quotes);
    if (spaces) output = withFrenchSpaces(output);
    return restoredCase(output, sourceCase, vocabulary, dotlessI);
  }), userText);
}

/** Change a translation in which each item is one `ITEM`, and each tag one mark of tags; they come back afterwards. */
export function outsideItems(text, change) {
  const edits = keepEdits(text, COPIED_KINDS);
  const { text: marked } = new Form(text, edits.map((edit) => (isTag(edit) ? { ...edit, model: TAG_MARK } : edit)));
  const items = edits.map(({ start, end }) => text.slice(start, end));
  let index = 0;
  return items.length ? change(marked).replace(MARKS, () => items[index++]) : change(text);
}

/** Return a translation with the target language's sign in numbers of one group that it copies from its source. */
export function withCopiedNumbers(text, source, groupings) {
  if (groupings[0] === groupings[1] || !text.includes(groupings[0])) return text;
  return withTargetSigns(text, groupings, (number) => number.replace(/\p{Nd}/gu, "") === groupings[0] && source.includes(number));
}

// ---- labels and endings
/** Return the translation of a label without a colon or a full stop, and with a capital if its source has one. */
export function asLabel(translation, source = "", dotlessI = false) {
  const label = translation.replace(LABEL_END, "");
  return isUpper(firstOf(source)) ? label.replace(FIRST_LETTER, (letter) => capital(letter, dotlessI)) : label;
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

/** Return the mark that a model reads instead of the marks at a sentence's end, or instead of none. */
export const markOf = (ending) => [..."?!"].find((mark) => ending.includes(mark)) ?? ".";

/** Return a translation with this ending instead of its final mark, if that is `markOf(ending)`, or after its last letter. */
export function withEnding(translation, ending) {
  const body = translation.trimEnd();
  const match = FINAL_MARK.exec(body);
  if (!match) return ending && isAlphanumeric(lastOf(body)) ? body + ending : translation;
  return markOf(match[0]) === markOf(ending) ? body.slice(0, match.index) + ending + body.slice(match.index + 1) : translation;
}

/** Return the text after a label with the colon as a language writes it. */
export const colonOfLabel = (separator, colon) => (colon ? separator.replace(LABEL_COLON, colon) : separator);

// ---- quotes
/** Return a source's quotes, which the model reads as straight ones, if all are typographic; else none. */
function typographicQuotesOf({ text, parts, form }) {
  if (!text.includes('"') || !form.edits.length) return [];
  const spans = parts.flatMap((part) => (part.edit ? [] : Array.from(part.text.matchAll(/"/g), ({ index }) => [part.start + index, part.start + index + 1])));
  const quotes = spans.map((span) => withoutEntities(form.source.slice(...form.userSpan(span))));
  return quotes.every(isTypographic) ? quotes : [];
}

/**
 * Return a translation with typographic quotes instead of its straight ones, if it has as many as its source.
 *
 * `sourceQuotes`: the replacements in order, unless `languageQuotes` are known and the quotes form pairs.
 */
export function withQuotes(translation, sourceQuotes, languageQuotes) {
  const offsets = Array.from(translation.matchAll(/"/g), ({ index }) => index);
  if (!sourceQuotes.length || offsets.length !== sourceQuotes.length) return translation;
  const isAt = (side, offset) => Object.assign(side, { lastIndex: offset }).test(translation);
  const arePairs = offsets.length % 2 === 0 && offsets.every((offset, index) => isAt(index % 2 ? CLOSING_QUOTE : OPENING_QUOTE, offset));
  let index = 0;
  return translation.replace(/"/g, () => (languageQuotes && arePairs ? languageQuotes[index++ % 2] : sourceQuotes[index++]));
}

/** Return the text between two sentences, with a language's quotes where quotes touch a sentence. */
export function separatorWithQuotes(separator, languageQuotes, isFirst, isLast) {
  if (!isFirst && isTypographic(separator.slice(0, 1))) {
    return languageQuotes[1] + separatorWithQuotes(separator.slice(1), languageQuotes, true, isLast);
  }
  return !isLast && isTypographic(separator.slice(-1)) ? separator.slice(0, -1) + languageQuotes[0] : separator;
}

/** Return a translation with the no-break spaces of French: before ? ! ; : and inside guillemets. */
export function withFrenchSpaces(translation) {
  return translation.replace(FRENCH, (match, ...values) => {
    const { high, opening } = values.at(-1);
    const [space, mark] = [high ? "\u202f" : "\xa0", match.trim()];
    return opening ? mark + space : space + mark;
  });
}
