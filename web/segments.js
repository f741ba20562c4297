// Texts, the pieces they are translated in, and how translations are joined. It follows text/segments.py.

import { inSentenceCase } from "./casing.js";
import { lacksFullStop, markOf, withoutEnclosing } from "./edges.js";
import { colonOfLabel, separatorWithQuotes } from "./typography.js";
import { BLOCK_BREAK, LOWERCASE, MAX_WORD, PATTERNS } from "./interface.js";
import { ITEMS, itemsOf, TAGS, withItems, withoutCopiedEdges } from "./keeping.js";
import { labelIn } from "./labels.js";
import { masked, withNumbers } from "./masked.js";
import { EXTENDS, unknownTokens } from "./normal.js";
import { spansBetween, splitSentences, splitToFit, stripped } from "./sentences.js";
import { firstOf, isAlphanumeric, isLower, isMark, isUpper, lastOf, lastUpTo, runsOn, withSpace, wordsOf } from "./words.js";

const LONE_SURROGATES = /[\ud800-\udfff]/gu;
const ONE_GROUP = new RegExp(PATTERNS.ONE_GROUP, "gu");
const MARKS_AT_END = new RegExp(PATTERNS.MARKS_AT_END, "u");
const LONG_WORD = new RegExp(PATTERNS.LONG_WORD, "gu");
const BLOCK_BREAKS = new RegExp(`${BLOCK_BREAK}+`, "g");

/** What goes through the model at once: a `Masked` source, as tokens. */
class Piece {
  isGlued = false; // only kept items separate it from the piece before
  ending = null; // what the user's sentence has instead of the final mark that the model reads; null if it reads the same
  sourceCase = undefined; // of the user's line, if the model reads it in sentence case instead
  isLabel = false; // whether it is the only word of the user's line, as in a menu
  forms = []; // of a label: pieces that the model reads, too; the translation that most forms have wins

  constructor(source, { ids, offsets }) {
    Object.assign(this, { source, ids, offsets, text: source.text.replaceAll(BLOCK_BREAK, " ") });
    [this.start, this.end] = source.span;
  }

  /** Return the span of the user's text behind a span of `text`. */
  sourceSpan(span) {
    return this.source.userSpan(span);
  }

  sourceText(span) {
    return this.source.form.source.slice(...this.sourceSpan(span));
  }

  isCopied(span) {
    return this.source.isCopied(span);
  }

  isAdded(span) {
    return this.source.isAdded(span);
  }
}

/** Turns texts into documents: cuts them, tokenises each piece once. */
export class Segmenter {
  /** `limit`: the most tokens of a source; `textless`: tokens without text. */
  constructor(vocabulary, rules, limit, textless, numbers) {
    Object.assign(this, { vocabulary, rules, limit, textless, numbers });
  }

  /**
   * Cut a text into pieces that fit.
   *
   * `copies`: leave out what is not a sentence, and keep items in sentences; `isForced`: return one piece without tags, the
   * first one that fits.
   */
  document(userText, { isForced = false, splits = !isForced, copies = !isForced } = {}) {
    const text = userText.replace(LONE_SURROGATES, "\ufffd");
    const normalises = copies || isForced; // else the model reads the text as it is
    const foreign = [];
    const readable = splits || !normalises ? text : text.replace(/[\v\x85]/g, " "); // breaks that would join two words
    const shortened = !splits || text.length <= MAX_WORD ? readable : text.replace(LONG_WORD, (word, start) => {
      foreign.push([start, start + word.length]);
      return "\n".repeat(word.length);
    });
    const cased = copies ? inSentenceCase(this.#withSigns(shortened), this.vocabulary, this.rules) : { text: shortened, lines: [] };
    const items = normalises ? itemsOf(cased.text, isForced ? TAGS : ITEMS) : [];
    const source = masked(cased.text, normalises ? this.vocabulary : null, items);
    const parsed = { text, copies: copies || foreign.length > 0, foreign, pieces: [] };
    const [cuts, lineStarts] = [gluedCuts(source), cased.lines.map(({ start }) => start)];
    for (const sentence of cutAt(cuts, this.#sentences(source, splits, isForced))) {
      const inner = copies ? withoutEnclosing(source.text, withoutCopiedEdges(source.text, sentence, this.rules.has_ordinals)) : sentence;
      const label = copies ? labelIn(source.text, inner) : null;
      const span = label ?? inner;
      if (span[0] === span[1]) continue;
      for (const part of this.#fitting(source.text, span).slice(0, isForced ? 1 : undefined)) {
        const mayLackStop = copies && part[1] === span[1] && !cuts.has(sentence[1]);
        const { piece, hasText, hasUnknown } = this.#piece(text, source.part(part), normalises, copies, mayLackStop);
        piece.isGlued = cuts.has(part[0]);
        const line = cased.lines[lastUpTo(lineStarts, piece.start)];
        piece.sourceCase = piece.start < line?.end ? line.case : undefined;
        piece.isLabel = label !== null && !piece.source.items.length;
        if (piece.isLabel) piece.forms = this.#labelForms(piece);
        if (hasText) parsed.pieces.push(piece);
        else if (hasUnknown) foreign.push([piece.start, piece.end]);
      }
    }
    return parsed;
  }

  /** Return a text with the signs in its numbers that the model reads. */
  #withSigns(text) {
    return withTargetSigns(withGrouping(text, this.rules.grouping, this.vocabulary), this.numbers, this.vocabulary);
  }

  #encoded(source) {
    return new Piece(source, this.#encode(source.text));
  }

  /** Tokenise a text; tags that end a sentence are read as spaces. */
  #encode(text) {
    if (!text.includes(BLOCK_BREAK)) return this.vocabulary.tokenizer.encode(text);
    const spaced = text.replaceAll(BLOCK_BREAK, " ");
    const start = spaced.length - spaced.trimStart().length;
    const { ids, offsets } = this.vocabulary.tokenizer.encode(spaced.trim());
    return { ids, offsets: offsets.map((span) => span && span.map((offset) => offset + start)) };
  }

  #sentences({ text, shadow, keeps }, splits, joinsBlocks) {
    if (splits) return splitSentences(shadow, this.rules);
    const blocks = keeps && !joinsBlocks ? spansBetween(BLOCK_BREAKS, text) : [[0, text.length]];
    return blocks.map((block) => stripped(text.replaceAll(BLOCK_BREAK, " "), block)).filter(([start, end]) => start < end);
  }

  #fitting(text, span) {
    const fits = (part) => this.#encode(part).ids.length <= this.limit;
    return fits(text.slice(...span)) ? [span] : splitToFit(text, span, fits);
  }

  /** Return a part of a text as a piece, whether it has text for the model, and anything that the vocabulary lacks. */
  #piece(text, source, normalises, copies, mayLackStop) {
    const plain = this.#encoded(source);
    const hasUnknownWord = this.#hasUnknown(plain) && !(normalises && isMark(source.text));
    const complete = mayLackStop ? this.#withFinalMark(text, plain) : plain;
    const unknown = unknownTokens(this.vocabulary, complete.text, complete);
    const hasUnknown = unknown.size > 0;
    const piece = this.#withNumbersForPlaceholders(hasUnknown && copies ? this.#withoutUnknown(complete, unknown) : complete);
    piece.ending = complete.ending;
    const hasText = piece.source.hasWords && (hasUnknownWord || piece.ids.some((token) => !this.textless.has(token)));
    return { piece, hasText, hasUnknown };
  }

  #hasUnknown({ ids }) {
    return ids.includes(this.vocabulary.unknown);
  }

  /** Return a sentence with one final mark if the user's lacks it, or has several, such as "..." or "?!". */
  #withFinalMark(text, piece) {
    const { source } = piece;
    const end = piece.text.length;
    const match = MARKS_AT_END.exec(piece.text);
    let [span, ending] = [[end, end], ""];
    if (!lacksFullStop(source.withoutItems)) {
      if (!match || source.parts.at(-1).kind || match.index < source.starts.at(-2)) return piece;
      span = [match.index, match.index + match[0].length];
      ending = text.slice(...source.userSpan(span));
      if (markOf(match[0]) !== markOf(ending)) [ending] = match; // the user's marks are full width, or ligatures
    }
    const changed = this.#encoded(source.withEnding(span, markOf(ending)));
    // a vocabulary may lack the mark
    if (changed.ids.length > this.limit || (this.#hasUnknown(changed) && !this.#hasUnknown(piece))) return piece;
    return Object.assign(changed, { ending });
  }

  /** Return other forms of a label that the vocabulary has: with a colon, and in lowercase with a colon. */
  #labelForms({ text, source, isGlued, sourceCase }) {
    const withColon = source.withColon();
    const isCapitalised = isUpper(firstOf(text)) && text.toLowerCase().endsWith(text.slice(firstOf(text).length));
    const forms = [withColon, ...(isCapitalised ? [withColon.lowercased()] : [])].map((form) => this.#encoded(form));
    return forms.filter((form) => form.ids.length <= this.limit && !this.#hasUnknown(form))
      .map((form) => Object.assign(form, { isGlued, sourceCase, isLabel: true }));
  }

  /** Protect words and signs with unknown tokens, which no model can translate, if the result fits. */
  #withoutUnknown(piece, unknown) {
    const { text, source } = piece;
    const spans = [];
    let last = null; // the last protected word
    for (const { span: [start, end], tokens } of wordsOf(text, piece.offsets)) {
      if (!tokens.some((token) => unknown.has(token)) || source.isCopied([start, end])) continue;
      const word = text.slice(start, end);
      const combines = EXTENDS.test(word);
      if (last && start === last.end && combines) last.end = end;
      else if (isMark(word)) {
        if (!combines && !this.vocabulary.covers(word)) spans.push({ start, end, kind: "signs" });
      } else if (last && isMark(text.slice(last.end, start))) { // only marks are between them
        while (spans.at(-1).start > last.start) spans.pop();
        last.end = end;
      } else spans.push(last = { start, end, kind: "unknown" });
    }
    const changed = spans.length ? source.withUnknown(withNumbers(text, spans)) : source;
    const protectedPiece = this.#encoded(changed);
    return protectedPiece.ids.length <= this.limit ? protectedPiece : piece;
  }

  /** Return a sentence with numbers instead of placeholders of numbers, if the result fits. */
  #withNumbersForPlaceholders(piece) {
    const source = piece.source.withNumbersForPlaceholders();
    const changed = source === piece.source ? piece : this.#encoded(source);
    return changed.ids.length <= this.limit ? changed : piece;
  }

  /** Return what to translate instead of a piece whose translation lost items: it with other stand-ins, or its parts between items. */
  retries(piece, translation) {
    const lost = piece.source.lost(translation);
    if (!lost.length) return [];
    const source = piece.source.withStandIns(lost);
    const retry = source && this.#encoded(source);
    const { isGlued, ending, sourceCase } = piece;
    if (retry?.ids.length <= this.limit) return [Object.assign(retry, { isGlued, ending, sourceCase })];
    return piece.source.aroundItems().map((part, index) => {
      const piecePart = this.#encoded(part);
      return Object.assign(piecePart, {
        isGlued: index === 0 && isGlued && piecePart.start === piece.start,
        ending: piecePart.text.endsWith(markOf(ending ?? "")) && piecePart.end === piece.end ? ending : null,
        sourceCase: sourceCase ?? (isLower(firstOf(piecePart.text)) ? LOWERCASE : undefined), // a model begins it with a capital
      });
    });
  }
}

/** Return a text with another grouping sign in numbers of one group, unless the vocabulary lacks a sign beside: see numerals.py. */
export function withGrouping(text, sign, vocabulary) {
  if (!sign) return text;
  return withItems(text, (part) => part.replace(ONE_GROUP, (match, group, start) => {
    return readsNeighbours(part, start, start + match.length + 3, vocabulary) ? group + sign : match;
  }));
}

/** Whether the vocabulary has the two characters on each side of a number, which are up to four units of UTF-16. */
function readsNeighbours(text, start, end, vocabulary) {
  const [left, right] = [text.slice(Math.max(start - 4, 0), start), text.slice(end, end + 4)].map((side) => Array.from(side));
  return [...left.slice(-2), ...right.slice(0, 2)].every((character) => vocabulary.reads(character));
}

/** Return a text with the signs of the target language in numbers that are kept. `forms`: of numbers, or none; see numerals.py. */
export function withTargetSigns(text, forms, vocabulary) {
  return converted(text, forms, (number, part, start) => (
    /\D.*\D/s.test(number) || !readsNeighbours(part, start, start + number.length, vocabulary)));
}

/** Return a translation with the target language's sign in numbers of one group that it copies from its source. */
export function withCopiedNumbers(translation, source, forms) {
  return converted(translation, forms, (number) => number.replace(/\d/g, "") === forms.signs[0] && source.includes(number));
}

/** Return a text with the signs of the target language in some of its numbers outside other items. */
function converted(text, forms, isConverted) {
  if (!forms) return text;
  const { pattern, signs: [, point], target_signs: targetSigns } = forms;
  const change = (part) => part.replace(new RegExp(pattern, "gu"), (number, start) => {
    if (!isConverted(number, part, start)) return number;
    const signs = number.replace(/\d/g, "");
    const last = signs.at(-1);
    const hasDecimals = ".,".includes(last) && (last === point || last !== signs[0]);
    let left = signs.length;
    return number.replace(/\D/g, () => targetSigns[+(!--left && hasDecimals)]);
  });
  return withItems(text, change, (item) => (/^\d[^{]*$/.test(item) ? change(item) : item));
}

/** Return the offsets between a placeholder and a letter: a sentence ends or begins there, as in "{0}Welcome". */
function gluedCuts({ text, parts, starts, items }) {
  return new Set(items.filter((index) => parts[index].kind === "placeholders").flatMap((index) => {
    const [start, end] = [starts[index], starts[index + 1]];
    return [
      ...(/\p{L}$/u.test(text.slice(Math.max(start - 2, 0), start)) ? [start] : []),
      ...(/^\p{L}/u.test(text.slice(end, end + 2)) ? [end] : []),
    ];
  }));
}

/**
 * Join the translations of the pieces with the text between these, mostly a space; return where each translation starts.
 *
 * `copies`: copy also the text before and after all of them. `quotes`, `colon`: see typography.js.
 */
export function joinTranslations({ text, pieces, copies }, translations, { quotes, colon } = {}) {
  let [joined, lastEnd] = ["", 0];
  /** Return the text before a piece, or after the last one, with the typography of the language. */
  const textBefore = (index) => {
    const written = text.slice(lastEnd, pieces[index]?.start);
    const separator = pieces[index - 1]?.isLabel ? colonOfLabel(written, colon) : written;
    return quotes ? separatorWithQuotes(separator, quotes, index === 0, index === pieces.length) : separator;
  };
  const starts = pieces.map(({ end, isGlued }, index) => {
    let separator = index || copies ? textBefore(index) : "";
    if (index && !separator.replace(/^ +$/, "") && !(isGlued && !separator)) {
      separator = runsOn(joined, translations[index]) ? "" : separator || " ";
    }
    joined = withSpace(withSpace(joined, separator), translations[index]);
    lastEnd = end;
    return joined.length - translations[index].length;
  });
  if (copies) joined = withSpace(joined, textBefore(pieces.length));
  return { text: joined, starts };
}

/** Cut each span at the offsets inside it. */
function cutAt(cuts, spans) {
  const offsets = [...cuts].sort((left, right) => left - right);
  return spans.flatMap(([start, end]) => {
    const edges = [start, ...offsets.slice(lastUpTo(offsets, start) + 1, lastUpTo(offsets, end - 1) + 1), end];
    return edges.slice(1).map((edge, index) => [edges[index], edge]);
  });
}
