// Which words of a text and of its translation belong together. It follows text/alignment.py.

import { MIN_SHARE, MIN_SHARE_OF_BEST, SPLIT_WORDS_PATTERN } from "./interface.js";
import { regex } from "./patterns.js";
import { writtenOf } from "./reading.js";
import { sumOf, targetEnds } from "./restoring.js";
import { inPlainLetters } from "./vocabulary.js";
import { isMark, WORDS, wordsOf } from "./words.js";

const SPLIT_WORDS = regex(SPLIT_WORDS_PATTERN, "gu");
const wordSpans = (text) => Array.from(text.matchAll(WORDS), ({ 0: word, index }) => [index, index + word.length]);

/**
 * Return the links of a piece, each the span of a source word and that of a word of its translation.
 *
 * `rows`: how much each token of the translation attends to each token of the source [T][S].
 */
export function linksOf(piece, decode, rows, translation) {
  const { ids } = piece.hypothesis;
  const output = decode(ids);
  const totals = rows.map((row) => sumOf(row.map((share) => Math.max(share, 0))) || 1);
  const words = sourceWords(piece);
  const ends = targetEnds(decode, ids);
  const links = wordSpans(output).flatMap((target) => {
    const isTargetMark = isMark(output.slice(...target));
    const tokens = [...ends.keys()].filter((token) => (ends[token - 1] ?? 0) < target[1] && target[0] < ends[token]);
    // marks align with marks only: their attention says little
    const candidates = words.filter((word) => word.isMark === isTargetMark);
    const shares = candidates.map((word) =>
      sumOf(tokens.map((token) => sumOf(word.tokens.map((index) => rows[token][index])) / totals[token])) / (tokens.length || 1));
    const threshold = Math.max(MIN_SHARE, MIN_SHARE_OF_BEST * Math.max(0, ...shares));
    return candidates.filter((_, index) => shares[index] >= threshold).map(({ span }) => [span, target]);
  });
  return output === translation ? links : restoredLinks(piece, links, output, translation);
}

/** Return the words of a piece with their spans of the user's text; neighbours with the same span, such as the dots of "…", are one word. */
function sourceWords(piece) {
  const { text } = piece;
  const words = [];
  for (const { span, tokens } of wordsOf(text, piece.offsets)) {
    if (piece.isAdded(span)) continue;
    const [userSpan, last] = [piece.userSpan(span), words.at(-1)];
    if (last?.span.join() === userSpan.join()) last.tokens = [...new Set([...last.tokens, ...tokens])];
    else words.push({ span: userSpan, tokens, isMark: isMark(text.slice(...span)) });
  }
  return words;
}

/** Move links of a model's output to its restored text, and link each kept item to its copy. */
export function restoredLinks({ parts, items }, links, output, translation) {
  const texts = [output, translation].map(inPlainLetters);
  const [outputSpans, spans] = texts.map(wordSpans);
  const [outputWords, words] = [outputSpans, spans].map((list, side) => list.map((span) => texts[side].slice(...span)));
  const moved = new Map(equalPairs(outputWords, words).map(([from, to]) => [outputSpans[from].join(), spans[to]]));
  return [
    ...links.flatMap(([source, target]) => (moved.has(target.join()) ? [[source, moved.get(target.join())]] : [])),
    ...items.flatMap((index) => {
      const [text, { start, end }] = [writtenOf(parts[index]), parts[index].edit];
      const copy = translation.indexOf(text);
      return copy < 0 ? [] : [[[start, end], [copy, copy + text.length]]];
    }),
  ];
}

/** Return the pairs of indices of equal words, in order, as Python's `difflib` matches them: the longest run first. */
function equalPairs(left, right, leftStart = 0, rightStart = 0) {
  let [length, leftBest, rightBest] = [0, 0, 0];
  let runs = [];
  left.forEach((word, i) => {
    runs = right.map((candidate, j) => (candidate === word ? (runs[j - 1] ?? 0) + 1 : 0));
    runs.forEach((run, j) => {
      if (run > length) [length, leftBest, rightBest] = [run, i + 1 - run, j + 1 - run];
    });
  });
  if (!length) return [];
  const [leftEnd, rightEnd] = [leftBest + length, rightBest + length];
  return [
    ...equalPairs(left.slice(0, leftBest), right.slice(0, rightBest), leftStart, rightStart),
    ...left.slice(leftBest, leftEnd).map((_, index) => [leftStart + leftBest + index, rightStart + rightBest + index]),
    ...equalPairs(left.slice(leftEnd), right.slice(rightEnd), leftStart + leftEnd, rightStart + rightEnd),
  ];
}

/** Return the links between the words of a text and of its translation, by their indices between spaces. */
export function numberedLinks({ text, pieces, copies }, joined, links) {
  let [sourceEnd, isCopied] = [0, copies];
  const textLinks = [];
  /** Link the text before a piece, or after the last one, to its copy, which ends at an offset of the translation. */
  const linkCopy = (end, copyEnd) => {
    for (const [start, stop] of wordSpans(text.slice(sourceEnd, end))) {
      const span = [sourceEnd + start, sourceEnd + stop];
      textLinks.push([span, span.map((offset) => offset + copyEnd - end)]);
    }
  };
  pieces.forEach(({ start, end }, index) => {
    const targetStart = joined.starts[index];
    if (isCopied) linkCopy(start, targetStart);
    textLinks.push(...links[index].map(([source, target]) => [source, target.map((offset) => offset + targetStart)]));
    [sourceEnd, isCopied] = [end, true];
  });
  if (copies) linkCopy(text.length, joined.text.length);
  const [source, target] = [text, joined.text].map(splitWords);
  const pairs = new Map();
  for (const [[start, end], [targetStart]] of textLinks) {
    const pair = [source.indices[start], target.indices[targetStart]];
    if (pair.includes(undefined)) continue; // a space inside of the quotes of French has no counterpart
    // the link of a mark at the end of a word says nothing about the word
    if (!isMark(text.slice(start, end)) || isMark(source.words[pair[0]] + target.words[pair[1]])) pairs.set(pair.join(), pair);
  }
  return [...pairs.values()].sort((left, right) => left[0] - right[0] || left[1] - right[1]);
}

/** Return the words of a text between spaces, and for each offset in a word the word's index. */
function splitWords(text) {
  const indices = [];
  const words = Array.from(text.matchAll(SPLIT_WORDS), ({ 0: word, index: start }, index) => {
    for (let offset = start; offset < start + word.length; offset++) indices[offset] = index;
    return word;
  });
  return { words, indices };
}
