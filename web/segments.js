// Texts, the pieces they are translated in, and how translations are joined. It follows text/segments.py.

import { BLOCK_BREAK, MAX_WORD, PATTERNS, QUOTES } from "./interface.js";
import { withCapitals, withoutCapitals, withoutCopiedEdges } from "./keeping.js";
import { masked, withNumbers } from "./masked.js";
import { EXTENDS, unknownTokens } from "./normal.js";
import { between, splitSentences, splitToFit, stripped } from "./sentences.js";
import { isMark, runsOn, withSpace, wordsOf } from "./words.js";

const LONE_SURROGATES = /[\ud800-\udfff]/gu;
const LONG_WORD = new RegExp(PATTERNS.LONG_WORD, "gu");
const BLOCK_BREAKS = new RegExp(`${BLOCK_BREAK}+`, "g");

/** What goes through the model at once: a `Masked` source, as tokens. */
class Piece {
  isGlued = false; // only kept items separate it from the piece before

  constructor(source, { ids, offsets }) {
    Object.assign(this, { source, ids, offsets, text: source.text });
    [this.start, this.end] = source.span;
  }

  /** Return the characters of the user's text behind some of `text`. */
  sourceSpan(span) {
    return this.source.userSpan(span);
  }

  sourceText(span) {
    return this.source.form.source.slice(...this.sourceSpan(span));
  }

  isCopied(span) {
    return this.source.isCopied(span);
  }
}

/** Turns texts into documents: cuts them, tokenises each piece once. */
export class Segmenter {
  /** `limit`: the most tokens of a source; `noText`: tokens without text. */
  constructor(vocabulary, rules, limit, noText) {
    Object.assign(this, { vocabulary, rules, limit, noText });
  }

  /**
   * Cut a text into pieces that fit.
   *
   * `copies`: leave out what is not a sentence, and keep items in sentences; `truncates`: return the first piece alone.
   */
  document(userText, { splits = true, copies = true, truncates = false } = {}) {
    const text = userText.replace(LONE_SURROGATES, "\ufffd");
    const foreign = [];
    const shortened = !splits || text.length <= MAX_WORD ? text : text.replace(LONG_WORD, (word, start) => {
      foreign.push([start, start + word.length]);
      return "\n".repeat(word.length);
    });
    const small = copies ? withoutCapitals(shortened) : null;
    const source = masked(small ?? shortened, this.vocabulary, copies);
    const document = { text, copies: copies || foreign.length > 0, inCapitals: small !== null, foreign, pieces: [] };
    const cuts = gluedCuts(source);
    for (const sentence of cutAt(cuts, this.#sentences(source, splits))) {
      const span = copies ? withoutQuotes(source, withoutCopiedEdges(source.text, sentence)) : sentence;
      if (span[0] === span[1]) continue;
      for (const part of this.#fitting(source.text, span).slice(0, truncates ? 1 : undefined)) {
        const { piece, hasText, hasUnknown } = this.#piece(source.part(part), copies);
        if (hasText) document.pieces.push(Object.assign(piece, { isGlued: cuts.has(part[0]) }));
        else if (hasUnknown) foreign.push([piece.start, piece.end]);
      }
    }
    return document;
  }

  #encode(text) {
    return this.vocabulary.tokenizer.encode(text);
  }

  #sentences({ text, shadow, keeps }, splits) {
    if (splits) return splitSentences(shadow, this.rules);
    const blocks = keeps ? between(BLOCK_BREAKS, text) : [[0, text.length]];
    return blocks.map((block) => stripped(text, block)).filter(([start, end]) => start < end);
  }

  #fitting(text, span) {
    const fits = (part) => this.#encode(part).ids.length <= this.limit;
    return fits(text.slice(...span)) ? [span] : splitToFit(text, span, fits);
  }

  /** Return a part of a text as a piece, whether it has text for the model, and anything that the vocabulary lacks. */
  #piece(source, copies) {
    const complete = new Piece(source, this.#encode(source.text));
    const hasUnknownWord = complete.ids.includes(this.vocabulary.unknown) && !isMark(source.text);
    const unknown = unknownTokens(this.vocabulary, source.text, complete);
    const hasUnknown = unknown.size > 0;
    const piece = hasUnknown && copies ? this.#withoutUnknown(complete, unknown) : complete;
    const hasText = piece.source.hasWords && (hasUnknownWord || piece.ids.some((token) => !this.noText.has(token)));
    return { piece, hasText, hasUnknown };
  }

  /** Protect words and signs with unknown tokens, which no model can translate, if the result fits. */
  #withoutUnknown(piece, unknown) {
    const { text, source } = piece;
    let [spans, last] = [[], null]; // the last protected word
    for (const { span: [start, end], tokens } of wordsOf(text, piece.offsets)) {
      if (!tokens.some((token) => unknown.has(token)) || source.isCopied([start, end])) continue;
      const word = text.slice(start, end);
      const combines = EXTENDS.test(word);
      if (last && start === last.end && combines) last.end = end;
      else if (isMark(word)) {
        if (!combines && !this.vocabulary.has(word)) spans.push({ start, end, kind: "signs" });
      } else if (last && isMark(text.slice(last.end, start))) { // only marks are between them
        spans = spans.filter((span) => span.start <= last.start);
        last.end = end;
      } else spans.push(last = { start, end, kind: "unknown" });
    }
    const changed = spans.length ? source.withUnknown(withNumbers(text, spans)) : source;
    const again = new Piece(changed, this.#encode(changed.text));
    return again.ids.length <= this.limit ? again : piece;
  }

  /** Return what is translated instead of a piece whose translation has lost items: other stand-ins, or what is between. */
  again(piece, translation) {
    const lost = piece.source.lost(translation);
    if (!lost.length) return [];
    const source = piece.source.withStandIns(lost);
    const next = source && new Piece(source, this.#encode(source.text));
    if (next?.ids.length <= this.limit) return [Object.assign(next, { isGlued: piece.isGlued })];
    return piece.source.aroundItems().map((part) => {
      const around = new Piece(part, this.#encode(part.text));
      return Object.assign(around, { isGlued: piece.isGlued && around.start === piece.start });
    });
  }
}

/** Return a sentence without quotes around all of it, if the model reads them only as plain ones. */
function withoutQuotes(source, [start, end]) {
  if (end - start < 3 || !"'\"".includes(source.text[start])) return [start, end];
  const [left, inner, right] = [[start, start + 1], [start + 1, end - 1], [end - 1, end]]
    .map((span) => source.form.source.slice(...source.userSpan(span)));
  const isAround = right !== "" && QUOTES[left]?.includes(right) && !inner.includes(left) && !inner.includes(right);
  return isAround ? [start + 1, end - 1] : [start, end];
}

/** Return where a placeholder ends, or begins, beside a letter: a word of another sentence, as in "{0}Welcome". */
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
 * Join the translations of the pieces with what is between them in the text, mostly a space; return where each starts.
 *
 * `copies`: also what is before and after all of them; `inCapitals`: the text is, so the translation is, too.
 */
export function joinTranslations({ text, pieces, copies, inCapitals }, translations) {
  let [joined, last] = ["", 0];
  const starts = pieces.map(({ start, end, isGlued }, number) => {
    let between = number || copies ? text.slice(last, start) : "";
    if (number && !between.replace(/^ +$/, "") && !(isGlued && !between)) {
      between = runsOn(joined, translations[number]) ? "" : between || " ";
    }
    joined = withSpace(withSpace(joined, between), translations[number]);
    last = end;
    return joined.length - translations[number].length;
  });
  if (copies) joined = withSpace(joined, text.slice(last));
  return { text: inCapitals ? withCapitals(joined) : joined, starts };
}

function cutAt(cuts, spans) {
  return spans.flatMap(([start, end]) => {
    const edges = [start, ...[...cuts].filter((cut) => start < cut && cut < end).sort((left, right) => left - right), end];
    return edges.slice(1).map((edge, index) => [edges[index], edge]);
  });
}
