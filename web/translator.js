// `Translator`: from texts to translations, and to what these leave out.

import { linksOf, numberedLinks } from "./alignment.js";
import { checksOf, countCertainFaults, hasInventedMark } from "./checks.js";
import { coverForeign, coverPiece, coverText, supportPiece } from "./coverage.js";
import { Engine, readBytes } from "./engine.js";
import { finished, mostFrequent } from "./finishing.js";
import { MAX_RETRIES, OPTIONS, RETRY_BEAMS } from "./interface.js";
import { ModelFile } from "./model_file.js";
import { restored, sums } from "./restoring.js";
import { knownForm, withoutTags } from "./rewriting.js";
import { editsOf, joinTranslations, Segmenter } from "./segments.js";
import { Tokenizer } from "./tokenizer.js";
import { Vocabulary } from "./vocabulary.js";

const BATCH_SIZE = 16;
// the options of `translate`, with those of the search
const NAMES = ["coverage", "support", "alignment", "batch_size", "split_sentences", "copy", "shortlist", ...Object.keys(OPTIONS)];

export class Translator {
  /** Load a model: its bytes, or the address of its file (a URL, or in node a path). */
  static async load(model, { threads = 1, reverse, ...others } = {}) {
    refuse(others, "load", "threads and reverse");
    atLeastOne({ threads });
    const reverseTranslator = reverse && await Translator.load(reverse, { threads });
    reverseTranslator?.#check();
    const isAddress = typeof model === "string" || model instanceof URL;
    const bytes = isAddress ? await readBytes(model) : new Uint8Array(model.buffer ?? model, model.byteOffset ?? 0, model.byteLength);
    try {
      const file = new ModelFile(bytes);
      return new Translator(await Engine.create(file, threads), file, reverseTranslator);
    } catch (error) {
      if (error.constructor === Error) throw error; // ours, which says what is wrong
      throw new Error(`the model cannot be loaded: download or convert it again (${error})`);
    }
  }

  constructor(engine, file, reverse) {
    const { languages, tokenizer, search, sentences, coverage, checks, typography, numbers } = file.model;
    [this.source, this.target] = languages;
    this.engine = engine;
    this.reverse = reverse;
    this.tokenizer = new Tokenizer(file.tokenizers[0], file.tokenizers[1], tokenizer.clean_up);
    this.unknown = tokenizer.unknown;
    this.defaults = search;
    this.checkWords = checks;
    this.typography = typography;
    const vocabulary = new Vocabulary(this.tokenizer, tokenizer.unknown, tokenizer.special);
    this.targetVocabulary = new Vocabulary(this.tokenizer.forTarget, tokenizer.unknown, tokenizer.special);
    const textless = new Set([...tokenizer.special, tokenizer.unknown]);
    this.segmenter = new Segmenter(vocabulary, sentences, search.longest_source ?? Infinity, textless, [sentences.grouping, numbers?.target_signs[0] ?? ""]);
    const lists = ["optional_words", "function_words"].map((name) => [name, new Set(coverage?.[name])]);
    this.calibration = coverage && { ...coverage, ...Object.fromEntries(lists) };
    this.shortlist = search.shortlist_multiple === null ? null : shortlistOf(file, search.shortlist_multiple);
  }

  /** Whether words can be marked: the model has a head that aligns words, which `capsule-mt calibrate` has chosen. */
  get marks() {
    return this.calibration !== null;
  }

  /** End the threads. */
  close() {
    this.engine.close();
    this.reverse?.close();
  }

  /** Translate a text, or each of a list: see index.d.ts. */
  translate(texts, options = {}) {
    const { support = false, coverage = support, alignment = false, batch_size = BATCH_SIZE, split_sentences: splits = true, copy: copies = true } = options;
    if (typeof texts === "string") return this.translate([texts], options)[0];
    if (!Array.isArray(texts)) throw new TypeError(`texts must be a string or a list of strings, got ${typeof texts}`);
    texts.forEach((text, index) => {
      if (typeof text !== "string") throw new TypeError(`texts[${index}] must be a string, got ${text === null ? text : typeof text}`);
    });
    checkOptions(options);
    atLeastOne({ batch_size });
    if (coverage) this.#check(support);
    const documents = texts.map((text) => this.segmenter.document(text, { splits, copies }));
    const request = { options, batchSize: batch_size, head: coverage || alignment ? this.calibration?.head ?? null : null };
    for (let pending = documents.flatMap(({ pieces }) => pieces.flatMap((piece) => [piece, ...piece.forms])); pending.length;) {
      this.#search(pending, request);
      if (copies) this.#repair(pending.filter(({ isLabel }) => !isLabel), request);
      pending = this.#retry(documents, pending);
    }
    for (const parsed of documents) parsed.pieces = parsed.pieces.map((piece) => (piece.forms.length ? this.#bestForm(piece) : piece));
    if (copies) this.#repair(documents.flatMap(({ pieces }) => pieces.filter(({ isLabel }) => isLabel)), request);
    return documents.map((parsed) => this.#assembled(parsed, copies, coverage, support, alignment));
  }

  /**
   * Search again for pieces whose translations have certain faults, and keep what has fewer.
   *
   * The tokens of brackets and quotes that the source lacks are forbidden in the next search: see translate/rounds.py.
   */
  #repair(pieces, request) {
    const inventedTokens = (piece, hypotheses) => hypotheses.flatMap(({ ids }) => ids)
      .filter((token) => hasInventedMark(piece.text, this.tokenizer.decode([token])));
    let forbidden = new Map(); // tokens, ascending, by piece
    for (const piece of pieces) {
      const hasLostItems = piece.lost(this.#output(piece)).length > 0; // which start other retries
      if (this.#countFaults(piece) && !hasLostItems) forbidden.set(piece, ascending(inventedTokens(piece, [piece.hypothesis])));
    }
    for (let retry = 0; retry < MAX_RETRIES && forbidden.size; retry++) {
      const further = new Map();
      for (const key of new Set(Array.from(forbidden.values(), String))) {
        const group = Array.from(forbidden.keys()).filter((piece) => String(forbidden.get(piece)) === key);
        const tokens = forbidden.get(group[0]);
        const candidates = this.#search(group, { ...request, forbidden: tokens });
        for (const piece of group) {
          const moreTokens = ascending([...tokens, ...inventedTokens(piece, candidates.get(piece))]);
          if (moreTokens.length > tokens.length && this.#countFaults(piece)) further.set(piece, moreTokens);
        }
      }
      forbidden = further;
    }
  }

  /** Return how many certain faults a hypothesis of a piece has: see translate/rounds.py. */
  #countFaults(piece, { ids } = piece.hypothesis) {
    const text = this.tokenizer.decode(ids);
    return piece.lost(text).length + countCertainFaults(piece.text, text, this.checkWords);
  }

  /** Return the form of a label whose translation is the most frequent one among its forms. */
  #bestForm(piece) {
    const forms = [piece, ...piece.forms];
    return forms[mostFrequent(forms.map((form) => this.#output(form)))];
  }

  /** Replace pieces whose translations have lost items by pieces to translate instead, and return these. */
  #retry(documents, pieces) {
    const replacements = new Map(pieces.map((piece) => [piece, this.segmenter.retries(piece, this.#output(piece))]));
    for (const parsed of documents) {
      parsed.pieces = parsed.pieces.flatMap((piece) => (replacements.get(piece)?.length ? replacements.get(piece) : [piece]));
    }
    return [...replacements.values()].flat();
  }

  /** Return the model's output for a piece. */
  #output(piece) {
    return this.tokenizer.decode(piece.hypothesis.ids);
  }

  /** Return what a translation of a text, read as one sentence, leaves out and makes up. */
  cover(text, translation, { support = false, marks, ...others } = {}) {
    refuse(others, "cover", "support and marks");
    if (![undefined, "sure", "likely", "all"].includes(marks)) throw new RangeError(`\`marks\` must be sure, likely or all, got ${JSON.stringify(marks)}`);
    this.#check(support);
    const piece = this.#forced(text, translation);
    const parsed = { text, pieces: piece ? [piece] : [], foreign: [] };
    const outputs = parsed.pieces.map((part) => this.#output(part));
    return this.#coverage(parsed, { text: translation, starts: [0] }, outputs, [translation], support, marks !== undefined);
  }

  /** Return a text as a piece with the user's translation; undefined for a blank text. */
  #forced(text, translation) {
    const [piece] = this.segmenter.document(text, { isForced: true }).pieces;
    if (!piece) return undefined;
    const limit = this.defaults.longest_target ?? Infinity;
    const target = this.tokenizer.encodeTarget(knownForm(withoutTags(translation), this.targetVocabulary));
    const ids = target.length > limit ? [...target.slice(0, limit - 1), target.at(-1)] : target;
    const [{ logProbs, attention }] = this.engine.force([piece.ids], [ids], this.calibration.head);
    const isEmpty = ids[0] === this.engine.tokens.end;
    const fields = { userTranslation: translation, hypothesis: { ids, logProbs }, received: mostReceived(piece.ids, isEmpty ? [] : attention) };
    return Object.assign(piece, fields);
  }

  #check(support = false) {
    if (!this.marks) {
      throw new Error("the model has no head that aligns words, which `capsule-mt calibrate` chooses before it is converted");
    }
    if (support && !this.reverse) throw new Error("support needs a reverse model: load this one with `reverse`");
  }

  /**
   * Search for the translations of pieces in batches, the longest first. With `forbidden` tokens, all beams come back: a
   * piece takes the first one with the fewest faults, if its hypothesis has more. Return the hypotheses of each piece.
   */
  #search(pieces, { options, batchSize, head, forbidden }) {
    const hypotheses = new Map();
    pieces.sort((left, right) => right.ids.length - left.ids.length);
    for (let start = 0; start < pieces.length; start += batchSize) {
      const batch = pieces.slice(start, start + batchSize);
      const candidates = this.#searchBatch(batch, options, head, forbidden);
      batch.forEach((piece, index) => hypotheses.set(piece, candidates[index]));
    }
    for (const [piece, candidates] of hypotheses) {
      const ranked = forbidden ? [piece.hypothesis, ...candidates] : candidates;
      const counts = ranked.length > 1 ? ranked.map((hypothesis) => this.#countFaults(piece, hypothesis)) : [0];
      piece.hypothesis = ranked[counts.indexOf(Math.min(...counts))];
      piece.received = head && mostReceived(piece.ids, piece.hypothesis.attention);
    }
    return hypotheses;
  }

  #searchBatch(pieces, options, head, forbidden) {
    const { longest_target: maxLength, forces_end: forcesEnd, length_factor: factor, options: defaults } = this.defaults;
    const searchOptions = Object.entries(options).filter(([name, value]) => name in OPTIONS && value !== undefined);
    const values = { ...defaults, ...Object.fromEntries(searchOptions) };
    if (forbidden) {
      values.num_beams = Math.max(values.num_beams, RETRY_BEAMS);
      values.suppress_tokens = [...values.suppress_tokens, ...forbidden];
    }
    const sourceLimits = pieces.map(({ ids }) => factor ? Math.ceil(factor * ids.length - 1e-6) : 3 * ids.length + 30);
    const hasEnd = this.engine.tokens.end >= 0;
    return this.engine.search(pieces.map(({ ids }) => ids), {
      limits: sourceLimits.map((limit) => Math.min(limit, maxLength ?? Infinity)),
      forcesEnd: sourceLimits.map((limit) => hasEnd && (limit < (maxLength ?? Infinity) ? !factor : forcesEnd)),
      options: values,
      numReturned: forbidden ? values.num_beams : 1,
      head,
      shortlist: options.shortlist ?? true ? this.shortlist : null,
    });
  }

  /** Assemble the translation of a text from those of its pieces. */
  #assembled(parsed, copies, coverage, support, alignment) {
    const { pieces } = parsed;
    const outputs = pieces.map((piece) => this.#output(piece));
    const translations = pieces.map((piece) => this.#restored(piece, copies));
    const joined = joinTranslations(parsed, translations, this.typography);
    const logProbs = pieces.flatMap(({ hypothesis }) => hypothesis.logProbs);
    return {
      text: joined.text,
      score: logProbs.length ? logProbs.reduce((sum, logProb) => sum + logProb) / logProbs.length : null,
      tokens: pieces.map(({ hypothesis }) => hypothesis.ids),
      edits: editsOf(parsed),
      // earlier model files do not say whether they mark single words
      ...(coverage && { coverage: this.#coverage(parsed, joined, outputs, translations, support, this.calibration.marks_single_words ?? true) }),
      ...(alignment && { alignment: this.#alignment(parsed, joined, translations) }),
    };
  }

  /** Return which words of a text and its translation belong together, as pairs of their indices between spaces. */
  #alignment(parsed, joined, translations) {
    const links = parsed.pieces.map((piece, index) =>
      linksOf(piece, (ids) => this.tokenizer.decode(ids), this.#alignedRows(piece.ids, piece.hypothesis), translations[index]));
    return numberedLinks(parsed, joined, links);
  }

  /** Return the translation of a piece with what it keeps of its source. */
  #restored(piece, copies) {
    const { ids, hypothesis } = piece;
    const decode = (tokens) => this.tokenizer.decode(tokens);
    const text = piece.form.kinds.length || piece.items.length ? restored(piece, hypothesis.ids, decode, () => this.#alignedRows(ids, hypothesis)) : decode(hypothesis.ids);
    return copies ? finished(text, piece, { ...this.segmenter, typography: this.typography }) : text;
  }

  /** Return how strongly each token of a translation aligns with each token of its source [T][S]: see aligning.py. */
  #alignedRows(source, { ids, attention }) {
    if (this.calibration) {
      const rows = attention ?? this.engine.force([source], [ids], this.calibration.head)[0].attention;
      // a head attends to the word just read, one step after the token that stands for it
      return [...rows.slice(1), ...rows.slice(-1)];
    }
    const logProbsOf = (tokens) => this.engine.force([tokens], [ids], null)[0].logProbs;
    const complete = logProbsOf(source);
    const without = source.map((_, deleted) => logProbsOf(source.filter((_, token) => token !== deleted)));
    return complete.map((logProb, step) => without.map((logProbs) => logProb - logProbs[step]));
  }

  #coverage({ text, pieces, foreign }, joined, outputs, translations, support, marksSingleWords) {
    const parts = pieces.map((piece, index) => ({
      start: piece.start,
      end: piece.end,
      source: text.slice(piece.start, piece.end),
      output: outputs[index],
      translation: translations[index],
      targetStart: joined.starts[index],
      covered: coverPiece(piece, piece.received, this.calibration, this.unknown, outputs[index]),
      support: support && this.#support(piece, outputs[index]),
    }));
    const coverage = coverText([...parts, ...foreign.map((span) => coverForeign(text, span))], this.calibration.alarm, marksSingleWords);
    // as the user wrote them: the model reads a text in capitals in lowercase
    for (const word of coverage.words) word.word = text.slice(word.start, word.end);
    return { ...coverage, checks: checksOf(text, joined.text, this.checkWords) };
  }

  #support({ text, hypothesis: { ids, logProbs } }, translation) {
    const offsets = this.tokenizer.offsetsIn(translation, ids);
    return supportPiece({ translation, offsets, logProbs, reversed: this.reverse.#forced(translation, text.trim()) }, this.calibration);
  }
}

/** Refuse options that do not exist, and values that the table of options does not accept. */
function checkOptions(options) {
  for (const [name, value] of Object.entries(options)) {
    if (!NAMES.includes(name)) {
      const [nearest] = [...NAMES].sort((left, right) => distance(name, left) - distance(name, right));
      const isNear = 2 * distance(name, nearest) <= Math.max(name.length, nearest.length);
      const hint = isNear ? `did you mean \`${nearest}\`?` : `it takes ${NAMES.join(", ")}`;
      throw new RangeError(`\`${name}\` is not an option of translate: ${hint}`);
    }
    if (name in OPTIONS && value !== undefined && !accepts(OPTIONS[name], value)) {
      throw new RangeError(`\`${name}\` must be ${OPTIONS[name].expected}, got ${JSON.stringify(value)}`);
    }
  }
}

function accepts({ kind, range, choices }, value) {
  if (kind === "switch") return typeof value === "boolean";
  if (kind === "choice") return ["boolean", "string"].includes(typeof value) && String(value) in choices;
  if (kind === "tokens") return Array.isArray(value) && value.every((token) => Number.isInteger(token) && token >= 0);
  const isNumber = kind === "integer" ? Number.isInteger(value) : Number.isFinite(value);
  return isNumber && range[0] <= value && value <= range[1];
}

/** Refuse options that do not exist. */
function refuse(others, call, accepted) {
  for (const name in others) throw new RangeError(`\`${name}\` is not an option of ${call}: it takes ${accepted}`);
}

/** Return the edit distance of two words. */
function distance(word, otherWord) {
  let row = [...Array(otherWord.length + 1).keys()];
  for (let i = 0; i < word.length; i++) {
    const nextRow = [i + 1];
    for (let j = 0; j < otherWord.length; j++) {
      nextRow.push(Math.min(row[j + 1] + 1, nextRow[j] + 1, row[j] + (word[i] !== otherWord[j])));
    }
    row = nextRow;
  }
  return row.at(-1);
}

function atLeastOne(values) {
  for (const name in values) {
    if (!Number.isInteger(values[name]) || values[name] < 1) throw new RangeError(`${name} must be at least 1, got ${values[name]}`);
  }
}

const ascending = (numbers) => [...new Set(numbers)].sort((left, right) => left - right);

/** Return the highest attention that each source token receives in any step. */
function mostReceived(ids, steps) {
  return ids.map((_, token) => Math.max(0, ...steps.map((step) => step[token])));
}

/** Return a function from a source to the tokens that it may become, ascending: see shortlist.py, and capsule_mt/web/model_file.py. */
export function shortlistOf(file, multiple) {
  const [lengths, frequent] = ["lengths", "frequent"].map((name) => file.numbers(`shortlist.${name}`));
  const starts = sums(lengths);
  const size = starts.at(-1);
  const differences = file.tensor("shortlist.differences").slice();
  const { vocabulary } = file.model.program;
  const { end } = file.model.tokens;
  return (source) => {
    const isListed = new Uint8Array(vocabulary);
    let count = 0;
    const add = (token) => {
      count += 1 - isListed[token];
      isListed[token] = 1;
    };
    frequent.forEach(add);
    for (const token of new Set(source)) {
      let listed = 0;
      for (let index = starts[token]; index < starts[token + 1]; index++) {
        for (let byte = index, shift = 0; byte < differences.length; byte += size, shift += 8) listed += differences[byte] << shift;
        add(listed);
      }
    }
    for (let token = frequent.length; count % multiple && token < vocabulary; token++) add(token);
    if (end >= 0) add(end);
    const list = new Int32Array(count);
    for (let token = 0, index = 0; index < count; token++) if (isListed[token]) list[index++] = token;
    return list;
  };
}
