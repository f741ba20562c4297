// Texts, the pieces they are translated in, and how translations are joined. It follows text/segments.py.

import { edgesOf, endingOf, labelIn } from "./edges.js";
import { colonOfLabel, separatorWithQuotes } from "./finishing.js";
import { BREAK, COPIED_KINDS, LONG_WORD_PATTERN, MAX_WORD } from "./interface.js";
import { regex } from "./patterns.js";
import { partsIn, Piece } from "./reading.js";
import { formOf, isItem, LATE_NAMES } from "./rewriting.js";
import { splitSentences, splitToFit, stripped } from "./sentences.js";
import { unknownTokens } from "./vocabulary.js";
import { firstOf, isMark, isUpper, lastUpTo, runsOn, tailOf, withSpace, wordsOf } from "./words.js";

const LONE_SURROGATES = /[\ud800-\udfff]/gu;
const LONG_WORD = regex(LONG_WORD_PATTERN, "gu");
const BLOCKS = new RegExp(`[^${BREAK}]+`, "g");

/** Turns texts into documents: cuts them, tokenises each piece once. */
export class Segmenter {
  /** `limit`: the most tokens of a source; `textless`: tokens without text; `groupings`: the signs in numbers of both languages. */
  constructor(vocabulary, rules, limit, textless, groupings = ["", ""]) {
    Object.assign(this, { vocabulary, rules, limit, textless, groupings });
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
    const kinds = copies ? COPIED_KINDS : isForced ? ["tags"] : [];
    const form = formOf(shortened, { ...this, kinds, copies, normalises, splits });
    const parsed = { text, form, copies: copies || foreign.length > 0, foreign, pieces: [] };
    const lineStarts = form.lines.map(({ start }) => start);
    for (const sentence of this.#sentences(form, splits, isForced)) {
      const inner = copies ? edgesOf(form.text, sentence, this.rules.has_ordinals) : sentence;
      const label = copies ? labelIn(form.text, inner) : null;
      const span = label ?? inner;
      if (span[0] === span[1]) {
        const unknown = form.copiesIn(sentence).map(({ edit }) => edit).filter(({ row }) => LATE_NAMES.includes(row));
        if (unknown.some(({ row }) => row === "unknown word")) foreign.push([unknown[0].start, unknown.at(-1).end]);
        continue;
      }
      for (const part of this.#fitting(form, span).slice(0, isForced ? 1 : undefined)) {
        const mayLackStop = copies && part[1] === span[1];
        const { piece, hasText, hasUnknown } = this.#piece(form, part, { normalises, copies, mayLackStop });
        const line = form.lines[lastUpTo(lineStarts, piece.start)];
        const isLabel = label !== null && !piece.items.length;
        Object.assign(piece, { sourceCase: piece.start < line?.end ? line.row : null, isLabel });
        if (isLabel) piece.forms = this.#labelForms(piece);
        if (hasText) parsed.pieces.push(piece);
        else if (hasUnknown) foreign.push([piece.start, piece.end]);
      }
    }
    return parsed;
  }

  /** Tokenise a piece. */
  #encoded(piece) {
    const { text } = piece;
    const start = text.length - text.trimStart().length; // after a tag that ends a sentence
    const { ids, offsets } = this.vocabulary.tokenizer.encode(text.trim());
    return Object.assign(piece, { ids, offsets: offsets.map((span) => span && span.map((offset) => offset + start)) });
  }

  #sentences(form, splits, joinsBlocks) {
    if (splits) return splitSentences(form.text, this.rules);
    const text = form.text.replaceAll(BREAK, " ");
    const blocks = form.kinds.length && !joinsBlocks ? Array.from(form.text.matchAll(BLOCKS), ({ 0: block, index }) => [index, index + block.length]) : [[0, text.length]];
    return blocks.map((block) => stripped(text, block)).filter(([start, end]) => start < end);
  }

  #fitting(form, span) {
    const fits = (part) => this.#encoded(new Piece(form, partsIn(form, part))).ids.length <= this.limit;
    return fits(span) ? [span] : splitToFit(form.text, span, fits);
  }

  /** Return a part of a form as a piece, whether it has text for the model, and anything that the vocabulary lacks. */
  #piece(form, span, { normalises, copies, mayLackStop }) {
    const plain = this.#encoded(new Piece(form, partsIn(form, span)));
    const complete = mayLackStop ? this.#withFinalMark(form, span, plain) : plain;
    const unknown = unknownTokens(this.vocabulary, complete.text, complete);
    const hasUnknown = unknown.size > 0;
    const piece = copies && hasUnknown ? this.#withoutUnknownWords(complete, unknown) : complete;
    const hasUnknownWord = this.#hasUnknown(piece) && !(normalises && isMark(piece.text));
    const hasText = piece.hasWords && (hasUnknownWord || piece.ids.some((token) => !this.textless.has(token)));
    return { piece, hasText, hasUnknown };
  }

  #hasUnknown({ ids }) {
    return ids.includes(this.vocabulary.unknown);
  }

  /** Return a sentence with one final mark if the user's lacks it, or has several, such as "..." or "?!". */
  #withFinalMark(form, span, piece) {
    const sentence = [piece.parts[0].start, span[1]];
    const mark = endingOf(form.text, sentence);
    if (!mark) return piece;
    const changed = this.#encoded(new Piece(form, partsIn(form, sentence, mark), { mark }));
    // a vocabulary may lack the mark
    return changed.ids.length > this.limit || (this.#hasUnknown(changed) && !this.#hasUnknown(piece)) ? piece : changed;
  }

  /** Protect words that are unknown though the vocabulary has their characters, as one of whole words may be. */
  #withoutUnknownWords(piece, unknown) {
    const spans = wordsOf(piece.text, piece.offsets).filter(({ span, tokens }) => (
      tokens.some((token) => unknown.has(token)) && !isMark(piece.text.slice(...span)) && !piece.isCopied(span))).map(({ span }) => span);
    const changed = spans.length ? this.#encoded(piece.withUnknownWords(spans)) : piece;
    return changed.ids.length <= this.limit ? changed : piece;
  }

  /** Return other forms of a label that the vocabulary has: with a colon, and in lowercase with a colon. */
  #labelForms(piece) {
    const { text } = piece;
    const withColon = piece.withColon();
    const isCapitalised = isUpper(firstOf(text)) && text.toLowerCase().endsWith(text.slice(firstOf(text).length));
    return [withColon, ...(isCapitalised ? [withColon.lowercased()] : [])].map((form) => this.#encoded(form))
      .filter((form) => form.ids.length <= this.limit && !this.#hasUnknown(form));
  }

  /** Return what to translate instead of a piece whose translation lost items: it with other stand-ins, or its parts between items. */
  retries(piece, translation) {
    const lost = piece.lost(translation);
    if (!lost.length) return [];
    const retry = piece.withStandIns(lost);
    if (retry && this.#encoded(retry).ids.length <= this.limit) return [retry];
    return piece.aroundItems().map((part) => this.#encoded(part));
  }
}

/**
 * Return what was changed in a text before a model read it, in order: { row, start, end, model, back }.
 *
 * An item has what the model read for it: itself, or a stand-in; null if no model read it. Text before, between and after
 * sentences that is copied has the row "edge", and a line in another case the row of its case.
 */
export function editsOf({ text, form, pieces, copies }) {
  const items = pieces.flatMap(({ parts, texts }) => parts.flatMap(({ edit }, index) => (edit && isItem(edit) ? [[edit, texts[index]]] : [])));
  const [read, ofForm] = [new Map(items.map(([{ start }, model]) => [start, model])), new Set(form.edits)];
  const ofPieces = items.filter(([edit]) => !ofForm.has(edit)).map(([edit, model]) => ({ ...edit, model }));
  const marks = pieces.flatMap(({ mark, ending }) => {
    const [start, end] = mark ? form.userSpan([mark.start, mark.end]) : [];
    return mark ? [{ row: "marks", start, end, model: mark.text, back: ending }] : [];
  });
  const edges = [0, ...pieces.map(({ end }) => end)].flatMap((start, index) => {
    const end = pieces[index]?.start ?? text.length;
    const written = text.slice(start, end);
    const isEdge = pieces.length && copies && written.trim() && !(form.starts[lastUpTo(form.starts, start - 1) + 1] < end);
    return isEdge ? [{ row: "edge", start, end, model: "", back: written }] : [];
  });
  const own = form.edits.map((edit) => (isItem(edit) ? { ...edit, model: read.get(edit.start) ?? null } : edit));
  return [...ofPieces, ...marks, ...own, ...form.lines, ...edges]
    .sort((left, right) => left.start - right.start || left.end - right.end);
}

/**
 * Join the translations of the pieces with the text between these, mostly a space; return where each translation starts.
 *
 * `copies`: copy also the text before and after all of them. `quotes`, `colon`: see finishing.js.
 */
export function joinTranslations({ text, pieces, copies }, translations, { quotes, colon } = {}) {
  const parts = [];
  let [length, tail, lastEnd] = [0, "", 0];
  const add = (addition) => {
    const longer = withSpace(tail, addition);
    parts.push(longer.slice(tail.length));
    length += longer.length - tail.length;
    tail = tailOf(longer);
  };
  /** Return the text before a piece, or after the last one, with the typography of the language. */
  const textBefore = (index) => {
    const written = text.slice(lastEnd, pieces[index]?.start);
    const separator = pieces[index - 1]?.isLabel ? colonOfLabel(written, colon) : written;
    return quotes ? separatorWithQuotes(separator, quotes, index === 0, index === pieces.length) : separator;
  };
  const starts = pieces.map(({ end }, index) => {
    let separator = index || copies ? textBefore(index) : "";
    if (index && !separator.replace(/^ +$/, "")) {
      separator = runsOn(tail, translations[index]) ? "" : separator || " ";
    }
    add(separator);
    add(translations[index]);
    lastEnd = end;
    return length - translations[index].length;
  });
  if (copies) add(textBefore(pieces.length));
  return { text: parts.join(""), starts };
}
