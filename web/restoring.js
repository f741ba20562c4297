// Puts back into a translation what it keeps of its source. It follows text/restoring.py.
//
// Legend: S source tokens, T tokens of the translation.

import { inOrder, isEmphasis, overlapping, partnersOf, writtenOf } from "./reading.js";
import { kindOf } from "./rewriting.js";
import { firstOf, isAlphanumeric, isMark, lastOf, lastUpTo, numbersAndWords, withSpace } from "./words.js";

const isFree = ({ kind }) => ["numbers", "numerals", "names"].includes(kind); // a translation may have others than its source
const isEmojiOrSign = ({ edit }) => ["emoji", "signs"].includes(kindOf(edit));
const isSpace = (text) => text !== "" && text.trim() === "";
export const sumOf = (values) => values.reduce((total, value) => total + value, 0);

/** Return the sums of the first 0, 1, ... of some numbers. */
export function sums(values) {
  let total = 0;
  return [0, ...values.map((value) => (total += value))];
}

/** Return the index of the first of the largest numbers. */
function argmax(values) {
  return values.reduce((best, value, index) => (value > values[best] ? index : best), 0);
}

/** The order of words and tags in a translation, whose tokens end at `ends`; an item is one word; `rows` [T][S]. */
class Layout {
  constructor(source, text, words, ends, rows) {
    Object.assign(this, { source, text, words });
    this.written = words.map(({ start, end }) => text.slice(start, end));
    this.isMark = this.written.map(isMark);
    this.partners = partnersOf(source.parts);
    const tokens = source.offsets.flatMap((span, token) => (span ? [[(span[0] + span[1]) / 2, token]] : []));
    tokens.sort((left, right) => left[0] - right[0] || left[1] - right[1]);
    this.centres = tokens.map(([centre]) => centre);
    const rowSums = rows.map((row) => sums(tokens.map(([, token]) => row[token])));
    this.rowsOfWords = words.map(({ start, end }) => rowSums.slice(lastUpTo(ends, start) + 1, lastUpTo(ends, end - 1) + 2));
  }

  /** Return the mean attention of each word's tokens to a span of the source. */
  #shares(span) {
    const [low, high] = span.map((offset) => lastUpTo(this.centres, offset - 0.5) + 1);
    return this.rowsOfWords.map((rows) => sumOf(rows.map((row) => row[high] - row[low])) / Math.max(1, rows.length));
  }

  #partner(tag) {
    return this.partners.get(tag) ?? tag;
  }

  /** Return the offset in the translation and the text of each tag, in order. */
  tags() {
    const positions = [];
    const pending = [{ tags: this.source.tags, first: 0, last: this.words.length }]; // no recursion: elements may be nested deeply
    for (let next; (next = pending.pop());) {
      if (next.tags) pending.push(...this.#positionTags(next).reverse());
      else positions.push(next);
    }
    const runs = [];
    for (const [offset, tag] of positions.sort((left, right) => left[0] - right[0])) { // stable
      const last = runs.at(-1);
      if (last?.offset === offset && this.#touch(last.tags.at(-1), tag)) last.tags.push(tag);
      else runs.push({ offset, tags: [tag] });
    }
    return runs.map(({ offset, tags }) => [offset, this.#spaced(tags, offset)]);
  }

  /** Whether two signs have nothing between them in the source, as those of "[]". */
  #touch(tag, nextTag) {
    return nextTag === tag + 1 && [tag, nextTag].every((index) => isEmojiOrSign(this.source.parts[index]));
  }

  /** Return the index of the word before which a tag at this offset of the source goes. */
  #point(offset) {
    const [left, right] = [[0, offset], [offset, this.source.text.length]];
    const indices = this.isMark.flatMap((mark, index) => (mark ? [] : [index]));
    if (!this.#hasWords(left)) return indices[0] ?? 0;
    if (!this.#hasWords(right)) return (indices.at(-1) ?? 0) + 1;
    // cut where words before attend to the left part and words after attend to the right part
    const margins = sums(this.#margins([left], [right]));
    return argmax(margins.map((margin) => 2 * margin - margins.at(-1)));
  }

  /** Return the first word, and the one after the last, of the run that attends most to a span of the source. */
  #interval([start, end]) {
    const shares = this.#hasWords([start, end]) ? this.#margins([[start, end]], []) : [];
    if (!shares.some((share) => share)) return Array(2).fill(this.#point(start));
    const margins = this.#margins([[start, end]], [[0, start], [end, this.source.text.length]]);
    const strongest = argmax(shares);
    // the run with the largest sum of margins (Kadane's algorithm); the strongest word where no sum is positive
    let [best, interval, total, first] = [0, [strongest, strongest + 1], 0, 0];
    margins.forEach((margin, index) => {
      if (total <= 0) [total, first] = [0, index];
      total += margin;
      if (total > best) [best, interval] = [total, [first, index + 1]];
    });
    return interval;
  }

  /** Return by how much more each word attends to some spans of the source than to others. */
  #margins(inside, outside) {
    const [insideShares, outsideShares] = [inside, outside].map((spans) => spans.map((span) => this.#shares(span)));
    const share = (shares, index) => sumOf(shares.map((values) => values[index]));
    return this.isMark.map((mark, index) => (mark ? 0 : share(insideShares, index) - share(outsideShares, index)));
  }

  #hasWords(span) {
    return !isMark(this.source.text.slice(...span));
  }

  /** Return the offset and the index of each tag, all of them in words first ... last - 1; of those inside an element, what to ask for them. */
  #positionTags({ tags, first, last }) {
    const { starts } = this.source;
    const elements = []; // first word, start tag, the word after the last
    let [endTag, minPoint] = [-1, first]; // empty elements and single tags keep their order
    for (const tag of tags) {
      if (tag <= endTag) continue;
      endTag = this.#partner(tag);
      let [begin, stop] = this.#interval([starts[tag], starts[endTag]]);
      if (begin === stop) begin = stop = minPoint = Math.max(begin, minPoint);
      else [begin, stop] = this.#withMarks(tag, endTag, begin, stop);
      elements.push([Math.min(Math.max(begin, first), last), tag, Math.min(stop, last)]);
    }
    const positions = [];
    let nextWord = first;
    for (const [earliest, tag, stop] of elements.sort((left, right) => left[0] - right[0] || left[1] - right[1])) {
      const begin = Math.max(earliest, nextWord); // the words before belong to the previous element
      const end = this.#partner(tag);
      nextWord = Math.max(begin, stop);
      const innerTags = tags.slice(lastUpTo(tags, tag) + 1, lastUpTo(tags, end - 1) + 1);
      if (begin < stop) {
        positions.push([this.words[begin].start, tag], { tags: innerTags, first: begin, last: stop }, [this.words[stop - 1].end, end]);
      } else {
        const isEnd = this.#isSign(tag) || writtenOf(this.source.parts[tag]).startsWith("</");
        const isAfter = begin === last || (begin > 0 && isEnd);
        const offset = isAfter ? this.words[begin - 1].end : this.words[begin].start;
        // marks of emphasis that are left without a word are dropped
        const points = [...new Set([tag, ...innerTags, end])].filter((point) => !(isEmphasis(this.source.parts[point]) && this.partners.has(point)));
        positions.push(...points.map((point) => [offset, point]));
      }
    }
    return positions;
  }

  /** Whether a tag belongs to the word at whose end it is, as a footnote's sign does. */
  #isSign(tag) {
    const [part, { starts, text }] = [this.source.parts[tag], this.source];
    const endsWord = isAlphanumeric(lastOf(text.slice(0, starts[tag]))) && !isAlphanumeric(text.slice(starts[tag]));
    return endsWord && (isEmojiOrSign(part) || writtenOf(part).endsWith("/>"));
  }

  /** Widen an element to the marks at its edges, such as a colon, that it encloses in the source. */
  #withMarks(tag, endTag, begin, stop) {
    let content = this.source.text.slice(this.source.starts[tag], this.source.starts[endTag]).trim();
    while (begin && this.isMark[begin - 1] && content.startsWith(this.written[begin - 1])) {
      content = content.slice(this.written[--begin].length);
    }
    while (stop < this.words.length && this.isMark[stop] && content.endsWith(this.written[stop])) {
      content = content.slice(0, -this.written[stop++].length);
    }
    return [begin, stop];
  }

  /** Return the text of a tag, or of signs that touch, with a space if the source has one on both sides. */
  #spaced(tags, offset) {
    const { parts } = this.source;
    const [tag, next] = [tags[0], parts[tags.at(-1) + 1]];
    const [item, isSign] = [tags.map((index) => writtenOf(parts[index])).join(""), isEmojiOrSign(parts[tag])];
    const [preceding, following] = [parts[tag - 1], next].map((part) => (part ? writtenOf(part) : ""));
    const isGlued = isSign // as in "Windows®"
      ? isAlphanumeric(lastOf(tag ? preceding : item)) && isAlphanumeric(lastOf(this.text.slice(0, offset)))
      : this.partners.has(tag) || !isSpace(lastOf(preceding)) || !isSpace(firstOf(following));
    if (isGlued) return item;
    const startsWord = /^ [^\p{L}\p{N}][\p{L}\p{N}]/u.test(this.text.slice(offset - 1)) || this.words.some(({ start }, index) => start === offset && !(isSign && this.isMark[index]));
    const beginsWord = isAlphanumeric(firstOf(next?.text ?? "")) && !isAlphanumeric(lastOf(tag ? preceding : item)); // as in "¡Hello"
    const space = kindOf(parts[tag].edit) === "signs" && beginsWord ? "" : " ";
    return startsWord ? item + space : ` ${item}`;
  }
}

/**
 * Return the text of a translation with the items and tags of its source, and without those the model invented.
 *
 * `source`: the piece; `decode`: returns the text of tokens; `align`: returns
 * rows [T][S], called only if there are tags.
 */
export function restored(source, ids, decode, align) {
  const text = decode(ids);
  const { matches, foreignItems } = source.itemsIn(text);
  const isMatched = overlapping(inOrder([...matches.values()]));
  const invented = foreignItems.filter((item) => !isFree(item) && item.kind !== "signs" && !isMatched(item));
  let tags = [];
  if (source.tags.length) {
    const words = wordsWithItems(text, [...matches.values(), ...foreignItems]).filter((word) => !invented.includes(word));
    if (!words.length) words.push({ start: text.length, end: text.length });
    tags = new Layout(source, text, words, targetEnds(decode, ids), align()).tags();
  }
  const edits = [
    ...invented.map((span) => ({ ...span, text: "" })),
    ...Array.from(matches, ([index, span]) => ({ ...span, text: writtenOf(source.parts[index]) })),
  ];
  return edited(text, tags, edits);
}

/** Insert tags at their offsets of a text, and replace spans; tags go first at the same offset. */
function edited(text, tags, edits) {
  const changes = [
    ...tags.map(([start, tag]) => ({ start, end: start, text: tag })),
    ...edits.filter((edit) => text.slice(edit.start, edit.end) !== edit.text),
  ].sort((left, right) => left.start - right.start); // stable
  let [written, lastEnd] = ["", 0];
  for (const { start, end, text: change } of changes) {
    written = withSpace(written, text.slice(lastEnd, start));
    written = withSpace(change[0] === " " ? written.trimEnd() : written, change);
    lastEnd = Math.max(lastEnd, end);
  }
  return withSpace(written, text.slice(lastEnd));
}

/** Return the spans of the words and marks of a translation; each item is one word. */
function wordsWithItems(text, items) {
  const isInItem = overlapping(inOrder(items));
  return inOrder([...numbersAndWords(text).filter((word) => !isInItem(word)), ...items]);
}

/** Return the offset at which each token of a translation ends in its text. */
export function targetEnds(decode, ids) {
  let end = 0;
  return ids.map((_, index) => (end = Math.max(end, decode(ids.slice(0, index + 1)).length)));
}
