// The typography of the target language: quotation marks, and spaces before French marks. It follows text/typography.py.
//
// The model's file has it: `quotes`, the opening and the closing mark; `colon`, of labels; `spaces`, a pattern;
// `dotless_i`: see casing.js.

import { withoutEntities } from "./entities.js";
import { PATTERNS, PLAIN } from "./interface.js";
import { withoutItems } from "./keeping.js";

const [OPENING_QUOTE, CLOSING_QUOTE] = [PATTERNS.OPENING_QUOTE, PATTERNS.CLOSING_QUOTE].map((pattern) => new RegExp(pattern, "uy"));
const LABEL_COLON = new RegExp(`^${PATTERNS.LABEL_COLON}`, "u");
const isTypographic = (mark) => mark !== "" && PLAIN['"'].includes(mark);

function matchesAt(pattern, text, offset) {
  pattern.lastIndex = offset;
  return pattern.test(text);
}

/** Return the user's typographic quotes that the model reads as straight ones; none if some quotes are straight. */
export function typographicQuotesOf(source) {
  const { text, form } = source;
  if (form.text === form.source) return [];
  const quotes = Array.from(text.matchAll(/"/g), ({ index }) => withoutEntities(form.source.slice(...source.userSpan([index, index + 1]))));
  return quotes.every(isTypographic) ? quotes : [];
}

/**
 * Return a translation with typographic quotes instead of its straight ones, if it has as many as its source.
 *
 * `sourceQuotes`: the replacements in order, unless `languageQuotes` are known and the quotes form pairs.
 */
export function withQuotes(translation, sourceQuotes, languageQuotes) {
  const offsets = Array.from(withoutItems(translation, " ").matchAll(/"/g), ({ index }) => index);
  if (!sourceQuotes.length || offsets.length !== sourceQuotes.length) return translation;
  const arePairs = offsets.length % 2 === 0
    && offsets.every((offset, index) => matchesAt(index % 2 ? CLOSING_QUOTE : OPENING_QUOTE, translation, offset));
  let [output, end] = ["", 0];
  offsets.forEach((offset, index) => {
    output += translation.slice(end, offset) + (languageQuotes && arePairs ? languageQuotes[index % 2] : sourceQuotes[index]);
    end = offset + 1;
  });
  return output + translation.slice(end);
}

/** Return a translation with a backslash before straight quotes of a kind if all of its source's have one. */
export function withEscapedQuotes(translation, source) {
  return [..."'\""].reduce((text, quote) => {
    const parts = source.split(quote).slice(0, -1);
    return parts.length && parts.every((part) => part.endsWith("\\")) ? text.replace(new RegExp(`(?<!\\\\)${quote}`, "g"), `\\${quote}`) : text;
  }, translation);
}

/** Return the text between two sentences, with a language's quotes where quotes touch a sentence. */
export function separatorWithQuotes(separator, languageQuotes, isFirst, isLast) {
  if (!isFirst && isTypographic(separator.slice(0, 1))) {
    return languageQuotes[1] + separatorWithQuotes(separator.slice(1), languageQuotes, true, isLast);
  }
  return !isLast && isTypographic(separator.slice(-1)) ? separator.slice(0, -1) + languageQuotes[0] : separator;
}

/** Return the text after a label with the colon as a language writes it. */
export function colonOfLabel(separator, colon) {
  return colon ? separator.replace(LABEL_COLON, colon) : separator;
}

/** Return a translation with no-break spaces before ? ! ; : and inside guillemets; `pattern` matches these marks. */
export function withFrenchSpaces(translation, pattern) {
  let [output, end] = ["", 0];
  for (const { 0: { length }, index, groups } of withoutItems(translation, "X").matchAll(new RegExp(pattern, "gu"))) {
    const { opening, high, colon, closing } = groups;
    const marked = high ? `\u202f${high}` : `\xa0${colon ?? closing}`;
    output += translation.slice(end, index) + (opening ? `${opening}\xa0` : marked);
    end = index + length;
  }
  return output + translation.slice(end);
}
