// What a translation leaves out: source words that get little attention from one head (see coverage/methods.py). And what
// it makes up: words of its own that get little from a reverse model (see coverage/supported.py).

import {
  DOUBT_THRESHOLD, LARGEST_EVIDENCE, LOG_PROB_WEIGHT, LONGEST_REPEATED_PHRASE, MIN_COPIED_LETTERS, MIN_LOG_PROB, NEIGHBOUR_WEIGHT,
  REFLEXIVES,
} from "./interface.js";
import { inPlainLetters } from "./vocabulary.js";
import { folded, isMark, WORDS, wordsOf } from "./words.js";

const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;

/** Return a function that says whether a translation has a word of its source at least as often: see coverage/piece_coverage.py. */
function wordLookup(translation, source) {
  const countOf = (text, word) => Array.from(text.matchAll(WORDS)).filter((match) => match[0] === word).length;
  return (word) => !(word.length < MIN_COPIED_LETTERS && /^[A-Za-z]+$/.test(word))
    && translation.includes(word) && countOf(translation, word) >= countOf(source, word);
}

/** Read a curve of points [x, y] by linear interpolation; constant beyond its ends. */
function onCurve(points, value) {
  if (points.length === 1) return points[0][1];
  let right = 1;
  while (right < points.length - 1 && points[right][0] < value) right++;
  const [[x0, y0], [x1, y1]] = [points[right - 1], points[right]];
  return y0 + Math.min(Math.max((value - x0) / (x1 - x0), 0), 1) * (y1 - y0);
}

/** Return the log-odds of a share of attention, at most LARGEST_EVIDENCE either way. */
function evidenceOf(share) {
  if (!(share > 0 && share < 1)) return share >= 0.5 ? LARGEST_EVIDENCE : -LARGEST_EVIDENCE;
  return Math.min(Math.max(Math.log(share / (1 - share)), -LARGEST_EVIDENCE), LARGEST_EVIDENCE);
}

/**
 * Cover the words of a piece of a text. `received`: the most attention that each token gets in any step; the calibration's
 * lists of words are sets.
 *
 * Return the piece's words, its score, and its weight in the score of the text.
 */
export function coverPiece(piece, received, calibration, unknown, translation) {
  const { text, ids, offsets, userTranslation } = piece;
  const isInTranslation = wordLookup(translation, text);
  const lists = [calibration.optional_words, calibration.function_words];
  const words = wordsOf(text, offsets).filter(({ span }) => !piece.isAdded(span)).map(({ span, tokens }) => {
    const word = text.slice(...span);
    const mark = isMark(word);
    const [isOptional, isFunction] = lists.map((list) => list.has(folded(word)));
    const isUnknown = tokens.some((token) => ids[token] === unknown);
    const attention = mark ? 1 : Math.max(...tokens.map((token) => received[token]));
    let covered = mark ? 1 : onCurve(calibration.words, evidenceOf(attention));
    let marked = covered < calibration.threshold && !isOptional;
    const [start, end] = piece.userSpan(span);
    const source = piece.form.source.slice(start, end);
    if (isUnknown) [covered, marked] = userTranslation?.includes(source) ? [1, false] : [0, true];
    if (piece.isCopied(span) || (marked && !mark && isInTranslation(word))) [covered, marked] = [1, false];
    const counts = !mark && !isOptional && (marked || !isFunction);
    const untranslated = marked && !mark;
    return {
      word: source, start, end, covered, untranslated, marked, counts,
      weighs: untranslated || !(mark || isOptional || isFunction),
    };
  });
  const countedWords = words.filter((word) => word.counts);
  let score = 1;
  if (countedWords.length) {
    const missing = mean(countedWords.map((word) => Number(word.marked)));
    score = Math.min(onCurve(calibration.sentences, mean(countedWords.map((word) => word.covered))), 1 - missing);
  }
  return {
    words: words.map(({ marked, counts, weighs, ...word }) => word),
    score,
    weight: words.filter((word) => word.weighs).length,
  };
}

/**
 * Find which words of a translation its source supports. `offsets`, `logProbs`: of the translation's tokens; `reversed`: the
 * translation as a piece of the other direction, with the attention that its tokens receive there; undefined if blank.
 *
 * Return its words, and their mean support.
 */
export function supportPiece({ translation, offsets, logProbs, reversed }, { optional_targets: optional = [] }) {
  const tokensOfSpan = new Map(wordsOf(translation, offsets).map(({ span, tokens }) => [span.join(), tokens]));
  const reversedOffsets = reversed?.offsets.map((span) => span && reversed.userSpan(span));
  const words = reversed ? wordsOf(translation, reversedOffsets).filter(({ span }) => !isMark(translation.slice(...span))) : [];
  const doubts = words.map(({ span, tokens }) => {
    const logProbsOfWord = (tokensOfSpan.get(span.join()) ?? []).map((token) => logProbs[token]);
    const logProb = Math.max(logProbsOfWord.length ? mean(logProbsOfWord) : 0, MIN_LOG_PROB);
    return -evidenceOf(Math.max(...tokens.map((token) => reversed.received[token]))) - LOG_PROB_WEIGHT * logProb;
  });
  const supported = words.map(({ span: [start, end] }, index) => {
    const neighbours = [doubts[index - 1], doubts[index + 1]].filter((value) => value !== undefined);
    const doubt = doubts[index] + (neighbours.length ? NEIGHBOUR_WEIGHT * mean(neighbours) : 0);
    const word = translation.slice(start, end);
    const counts = !optional.includes(folded(word));
    const share = 1 / (1 + Math.exp(doubt - DOUBT_THRESHOLD));
    return { counts, word: { word, start, end, supported: share, unsupported: counts && doubt > DOUBT_THRESHOLD } };
  });
  const shares = supported.filter(({ counts }) => counts).map(({ word }) => word.supported);
  return { words: supported.map(({ word }) => word), score: shares.length ? mean(shares) : 1 };
}

/**
 * Return the coverage of a text. Each piece has what `coverPiece` returned as `covered` and, if support is checked, what
 * `supportPiece` did as `support`; its span, source and translation; and where this translation starts in the whole one.
 * Unless `marksSingleWords`, only sentences that raise the alarm have marks.
 */
export function coverText(pieces, alarm, marksSingleWords) {
  const showsMarks = ({ covered }) => marksSingleWords || (alarm !== null && covered.score < alarm);
  const supportedPieces = pieces.filter(({ support }) => support);
  const total = pieces.reduce((sum, { covered }) => sum + covered.weight, 0);
  const sentences = pieces.map(({ start, end, covered: { score } }) =>
    ({ start, end, score, ...(alarm !== null && { below_threshold: score < alarm }) }));
  return {
    score: total ? pieces.reduce((sum, { covered }) => sum + covered.weight * covered.score, 0) / total : 1,
    sentences,
    words: pieces.flatMap((piece) => piece.covered.words.map((word) => ({ ...word, untranslated: word.untranslated && showsMarks(piece) }))).sort((left, right) => left.start - right.start),
    ...(supportedPieces.length && {
      support: mean(supportedPieces.map(({ support }) => support.score)),
      target_words: supportedPieces.flatMap((piece) => targetWords(piece).map((word) => ({ ...word, unsupported: word.unsupported && showsMarks(piece) }))),
    }),
    repetitions: pieces.flatMap(({ source, translation }) => repeatedPhrases(translation, source)),
    method: "attention",
  };
}

/** Return the words of the model's output, at their offsets in a translation that has the case and the items of its source. */
function targetWords({ support, output, translation, targetStart }) {
  const [plainOutput, plainTranslation] = [output, translation].map(inPlainLetters);
  let end = 0;
  return support.words.flatMap((word) => {
    const start = plainTranslation.indexOf(plainOutput.slice(word.start, word.end), end);
    if (start < 0) return []; // kept text replaced the word
    end = start + word.end - word.start;
    return [{ ...word, word: translation.slice(start, end), start: targetStart + start, end: targetStart + end }];
  });
}

/** Return the coverage of a part of a text that is copied, because the vocabulary does not know it. */
export function coverForeign(text, [start, end]) {
  const words = Array.from(text.slice(start, end).matchAll(WORDS)).filter(([word]) => !isMark(word)).map(({ 0: word, index }) =>
    ({ word, start: start + index, end: start + index + word.length, covered: 1, untranslated: false }));
  return { start, end, source: "", translation: "", covered: { words, score: 1, weight: words.length } };
}

/** Return the phrases that a translation says twice in a row, unless its source repeats itself as often. */
function repeatedPhrases(translation, source) {
  const repeated = doubled(translation);
  return repeated.length <= doubled(source).length ? [] : [...new Set(repeated)];
}

export function doubled(text) {
  const words = Array.from(text.matchAll(WORDS), (match) => folded(match[0]));
  const repeated = [];
  if (new Set(words).size === words.length) return repeated;
  for (let index = 0; index < words.length;) {
    let step = 1;
    for (let length = LONGEST_REPEATED_PHRASE; length > 0; length--) {
      const [phrase, next] = [0, length].map((offset) => words.slice(index + offset, index + offset + length));
      if (next.length < length || phrase.some((word, wordIndex) => word !== next[wordIndex])) continue;
      if (phrase.every(isMark) || REFLEXIVES.includes(phrase.join(" "))) continue;
      repeated.push(phrase.join(" "));
      step = length;
      break;
    }
    index += step;
  }
  return repeated;
}
