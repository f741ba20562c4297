// Which functions take more than linear time on repeated texts: their names and the texts, with the seconds of two lengths.
//
// Standard input: `names` of functions, `series` of three texts, each four times as long as the one before, `rules` of sentences,
// and `words` of checks.
import { readFileSync } from "node:fs";
import { checksOf } from "./checks.js";
import { finished } from "./finishing.js";
import { COPIED_KINDS } from "./interface.js";
import { partsIn, Piece } from "./reading.js";
import { Form, keepEdits } from "./rewriting.js";
import { restored } from "./restoring.js";
import { editsOf, joinTranslations, Segmenter } from "./segments.js";
import { Vocabulary } from "./vocabulary.js";

const [MAX_RATIO, MIN_SECONDS, TRIES] = [8, 0.02, 5];
const CERTAIN_SECONDS = 0.2; // of a longer text; what takes less varies, and the longest text has to agree
const MAX_WORDS = 10; // beside tags: the time grows with tags times words, and models bound the words of a sentence
const { names, series, rules, words } = JSON.parse(readFileSync(0));
const ids = new Map();

/** Tokenise a text: each word between spaces is a token, and one with other than Latin letters is unknown. */
function encode(text) {
  const matches = [...text.matchAll(/\S+/g)];
  const idOf = (word) => (/[^\x00-\u024f]/.test(word) ? 0 : ids.get(word) ?? ids.set(word, ids.size + 2).get(word));
  return { ids: [...matches.map(([word]) => idOf(word)), 1], offsets: [...matches.map(({ 0: word, index }) => [index, index + word.length]), null] };
}

const vocabulary = new Vocabulary({ encode, encodeTarget: (text) => encode(text).ids, decode: () => "a", byteIds: new Set() }, 0, [1]);
const segmenter = new Segmenter(vocabulary, rules, Infinity, new Set([0, 1]), [",", "."]);
const typography = { quotes: ["“", "”"], colon: "\xa0:", spaces: true, dotless_i: false };
/** Return a text as a piece of which items are kept, and nothing else changes. */
function kept(text, standIns) {
  const form = new Form(text, keepEdits(text, COPIED_KINDS), COPIED_KINDS);
  return new Piece(form, partsIn(form, [0, form.text.length]), { standIns });
}

const functions = {
  documents: (text) => {
    const parsed = segmenter.document(text);
    const translations = parsed.pieces.map((piece) => finished(piece.text, piece, { ...segmenter, typography }));
    joinTranslations(parsed, translations, typography);
    editsOf(parsed);
  },
  checks: (text) => {
    checksOf(text, text, words);
    checksOf(text, text.replaceAll("a", "o").replaceAll("1", "2"), words);
  },
  retries: (text) => {
    const piece = kept(text);
    (piece.withStandIns(piece.lost("a")) ?? piece).lost(text);
    piece.aroundItems();
  },
  restored: (text) => {
    const piece = kept(text, new Map());
    const { ids: source, offsets } = encode(piece.text);
    if (piece.tags.length && source.length > MAX_WORDS) return;
    const target = piece.tags.length ? source : [];
    restored(Object.assign(piece, { offsets }), target, () => (piece.tags.length ? piece.text : text), () => target.map(() => source.map(() => 1)));
  },
};

function secondsFor(run, text) {
  const start = process.cpuUsage();
  run(text);
  const { user, system } = process.cpuUsage(start);
  return (user + system) / 1e6;
}

function growsTooFast(run, short, long) {
  let [shortest, longest] = [0, Infinity];
  for (let round = 0; round < TRIES; round++) {
    longest = Math.min(longest, secondsFor(run, long));
    if (longest < MIN_SECONDS) return null;
    shortest = Math.max(shortest, secondsFor(run, short));
    if (longest <= MAX_RATIO * shortest) return null;
  }
  return [shortest, longest];
}

const slow = names.flatMap((name) => series.flatMap(([short, long, longest]) => {
  let seconds = growsTooFast(functions[name], short, long);
  if (seconds?.[1] < CERTAIN_SECONDS) seconds = growsTooFast(functions[name], long, longest);
  return seconds ? [[name, short.slice(0, 20), ...seconds]] : [];
}));
process.stdout.write(JSON.stringify(slow));
