// A tokenizer as tokenizer.json describes it, with the characters that each token stands for. In a model's file, `scores` are apart
// from `vocab`, and `precompiled_charsmap` is not in base64.
//
// A text goes through a normaliser, is cut into words, and each word into pieces of the vocabulary. Offsets count
// JavaScript's units of UTF-16. Of Hugging Face's tokenizers it knows the components that translation models have.

import { escaped } from "./patterns.js";

const encoder = new TextEncoder();
const PUNCTUATION = /[\p{P}$+<=>^`|~]/gu; // as in Rust, with the symbols of ASCII
const CLUSTER = /[^][\p{M}\u1160-\u11ff]*/gu; // a character with the marks that may compose with it
const UNKNOWN_PENALTY = 10; // nats below the least likely piece, for a character that no piece has
const MAX_PART = 32; // characters that a `CharacterMap` replaces at once
const MAX_WORDS = 20000; // in a cache

const patternOf = ({ String: plain, Regex: pattern }) => new RegExp(plain === undefined ? pattern : escaped(plain), "g");
const RARE_SIGNS = "#$%&()*+/:;<=>@[\\]^_`{|}~"; // of ASCII, which a vocabulary may lack
const byteToken = (byte) => `<0x${byte.toString(16).toUpperCase().padStart(2, "0")}>`;

/** Build a component by its description; `component`: what an error calls it. */
function build(builders, description, component) {
  const builder = builders[description.type];
  if (!builder) throw new Error(`the tokenizer has the ${component} ${description.type}, which is not known here`);
  return builder(description);
}

const chained = (parts) => (value) => parts.reduce((result, part) => part(result), value);

// ---- normalisers: from a text, with the offsets of each character in the original text, to another one

/**
 * Return a text with contents instead of spans; each character of a content stands for its whole span.
 *
 * As in `tokenizers`, a space stands for the last character alone: several spaces may have become one.
 */
function replaced({ text, starts, ends }, spans, contents) {
  if (spans.length === 0) return { text, starts, ends };
  const result = { text: "", starts: [], ends: [] };
  let copied = 0;
  const keep = (end) => {
    result.text += text.slice(copied, end);
    for (; copied < end; copied++) {
      result.starts.push(starts[copied]);
      result.ends.push(ends[copied]);
    }
  };
  spans.forEach(([start, end], index) => {
    keep(start);
    result.text += contents[index];
    for (let i = 0; i < contents[index].length; i++) {
      result.starts.push(starts[contents[index] === " " ? end - 1 : start]);
      result.ends.push(ends[Math.max(end - 1, start)]);
    }
    copied = end;
  });
  keep(text.length);
  return result;
}

function byPattern(pattern, contentOf) {
  return (normal) => {
    const matches = [...normal.text.matchAll(pattern)];
    const spans = matches.map((match) => [match.index, match.index + match[0].length]);
    return replaced(normal, spans, matches.map((match) => contentOf(match[0])));
  };
}

const NORMALIZERS = {
  Sequence: ({ normalizers }) => chained(normalizers.map((part) => build(NORMALIZERS, part, "normalizer"))),
  NFKC: () => {
    const slowly = byPattern(CLUSTER, (cluster) => cluster.normalize("NFKC"));
    return (normal) => (normal.text.normalize("NFKC") === normal.text ? normal : slowly(normal));
  },
  Replace: ({ pattern, content }) => byPattern(patternOf(pattern), () => content),
  Prepend: ({ prepend }) => (normal) => prepended(normal, prepend, true),
  Precompiled: ({ precompiled_charsmap: map }) => new CharacterMap(map).normalizer(),
};

const withOffsets = (text) => {
  const positions = Array.from({ length: text.length }, (_, position) => position);
  return { text, starts: positions, ends: positions.map((position) => position + 1) };
};

/** Return a text, with offsets, as SentencePiece reads it. */
const asInSentencePiece = chained([
  NORMALIZERS.NFKC(), byPattern(/(?!\s)[\p{Cc}\p{Cf}]/gu, () => ""), byPattern(/\s+/g, () => " "),
]);

/** Put a prefix before a text. It stands for the first character, as in `tokenizers`, or else for none. */
function prepended({ text, starts, ends }, prefix, standsForFirst) {
  if (text === "") return { text, starts, ends };
  const copies = (position) => Array(prefix.length).fill(position);
  return {
    text: prefix + text,
    starts: [...copies(starts[0]), ...starts],
    ends: [...copies(standsForFirst ? ends[0] : starts[0]), ...ends],
  };
}

/** SentencePiece's map: a double-array trie (darts-clone) of UTF-8 strings, then the replacement of each. */
class CharacterMap {
  constructor(bytes) {
    const size = new DataView(bytes.buffer).getUint32(0, true);
    this.trie = new Uint32Array(bytes.slice(4, 4 + size).buffer);
    this.contents = bytes.subarray(4 + size);
    this.decoder = new TextDecoder();
    this.bytes = new Map(); // of characters
    const ascii = Array.from({ length: 95 }, (_, code) => String.fromCharCode(32 + code));
    this.keepsAscii = ascii.every((first) => ascii.every((second) => this.longest(first + second, 0) === null));
  }

  normalizer() {
    return (normal) => {
      const { text } = normal;
      if (this.keepsAscii && /^[ -~]*$/.test(text)) return normal;
      const spans = [];
      const contents = [];
      for (let offset = 0; offset < text.length;) {
        const match = this.longest(text, offset);
        if (match) {
          spans.push([offset, offset + match.length]);
          contents.push(match.content);
        }
        offset += match?.length ?? String.fromCodePoint(text.codePointAt(offset)).length;
      }
      return replaced(normal, spans, contents);
    };
  }

  /** Return the length of the longest part of a text from an offset on that the map has, and its replacement; or null. */
  longest(text, offset) {
    const { trie } = this;
    const below = (unit) => (unit >>> 10) << ((unit & 512) >>> 6);
    let node = below(trie[0]);
    let match = null;
    let length = 0;
    let unit = 0;
    for (const character of text.slice(offset, offset + MAX_PART)) {
      length += character.length;
      for (const byte of this.#bytesOf(character)) {
        node ^= byte;
        unit = trie[node];
        if ((unit & 0x800000ff) !== byte) return match && this.#content(match);
        node ^= below(unit);
      }
      if ((unit >>> 8) & 1) match = { offset: trie[node] & 0x7fffffff, length };
    }
    return match && this.#content(match);
  }

  #bytesOf(character) {
    let bytes = this.bytes.get(character);
    if (!bytes) {
      bytes = encoder.encode(character);
      if (this.bytes.size < MAX_WORDS) this.bytes.set(character, bytes);
    }
    return bytes;
  }

  #content({ offset, length }) {
    const end = this.contents.indexOf(0, offset);
    return { content: this.decoder.decode(this.contents.subarray(offset, end)), length };
  }
}

// ---- pre-tokenizers: add the offsets at which the normalised text is cut into words
const PRE_TOKENIZERS = {
  Sequence: ({ pretokenizers }) => chained(pretokenizers.map((part) => build(PRE_TOKENIZERS, part, "pre-tokenizer"))),
  Metaspace: ({ replacement, prepend_scheme: scheme, split }) => ({ normal, cuts }) => {
    let marked = { ...normal, text: normal.text.replaceAll(" ", replacement) };
    if (scheme !== "never" && !marked.text.startsWith(replacement)) marked = prepended(marked, replacement, false);
    const starts = split ? spansOf(marked.text, new RegExp(escaped(replacement), "g")).map(([start]) => start) : [];
    return { normal: marked, cuts: new Set([...cuts, ...starts]) };
  },
  Punctuation: ({ behavior }) => {
    if (behavior !== "Isolated") throw new Error(`the tokenizer splits punctuation as ${behavior}, which is not known here`);
    return ({ normal, cuts }) => ({ normal, cuts: new Set([...cuts, ...spansOf(normal.text, PUNCTUATION).flat()]) });
  },
  Split: ({ pattern, behavior, invert }) => {
    if (behavior !== "MergedWithPrevious" || invert) {
      throw new Error(`the tokenizer splits as ${behavior}, which is not known here`);
    }
    const compiled = patternOf(pattern);
    return ({ normal, cuts }) => (
      { normal, cuts: new Set([...cuts, ...spansOf(normal.text, compiled).map(([, end]) => end)]) });
  },
};

const spansOf = (text, pattern) =>
  [...text.matchAll(pattern)].map((match) => [match.index, match.index + match[0].length]);

// ---- models: cut a word into pieces [token, start, end]
const MODELS = { BPE: bytePairs, Unigram: unigram };

/** Merge neighbours, at each step the pair that comes first in the list of merges. */
function bytePairs({ vocab, merges, unk_token: unknown, byte_fallback: hasBytes, fuse_unk: fuses, ...otherSettings }) {
  for (const name of ["continuing_subword_prefix", "end_of_word_suffix", "ignore_merges"]) {
    if (otherSettings[name]) throw new Error(`the tokenizer has \`${name}\`, which is not known here`);
  }
  const tokens = new Map(Object.entries(vocab));
  const ranks = new Map(merges.map((pair, rank) => [(Array.isArray(pair) ? pair : pair.split(" ")).join("\0"), rank]));
  const rankOf = (left, right) => ranks.get(`${left.text}\0${right.text}`) ?? Infinity;
  const cut = (word) => {
    let offset = 0;
    const parts = Array.from(word, (text) => ({ text, start: offset, end: (offset += text.length) }));
    for (;;) {
      let best = Infinity;
      let bestIndex = -1;
      for (let i = 0; i + 1 < parts.length; i++) {
        const rank = rankOf(parts[i], parts[i + 1]);
        if (rank < best) [best, bestIndex] = [rank, i];
      }
      if (bestIndex < 0) break;
      const [left, right] = parts.slice(bestIndex, bestIndex + 2);
      parts.splice(bestIndex, 2, { text: left.text + right.text, start: left.start, end: right.end });
    }
    return parts;
  };
  return { tokens, cut: (word) => withKnownTokens(cut(word), tokens, hasBytes, tokens.get(unknown), fuses) };
}

/** Cut a word into the pieces whose log-probabilities have the largest sum. */
function unigram({ vocab, scores, unk_id: unknown, byte_fallback: hasBytes }) {
  const tokens = new Map(vocab.map((text, token) => [text, token]));
  const maxLength = Math.max(...vocab.map((text) => text.length));
  const unknownScore = Math.min(...scores) - UNKNOWN_PENALTY;
  const cut = (word) => {
    const best = Array(word.length + 1).fill(-Infinity);
    const starts = Array(word.length + 1).fill(0);
    best[0] = 0;
    const offer = (start, end, score) => {
      if (best[start] + score > best[end]) [best[end], starts[end]] = [best[start] + score, start];
    };
    for (let start = 0; start < word.length; start++) {
      if (best[start] === -Infinity) continue; // within a character
      const characterEnd = start + String.fromCodePoint(word.codePointAt(start)).length;
      for (let end = characterEnd; end <= Math.min(start + maxLength, word.length); end++) {
        const token = tokens.get(word.slice(start, end));
        if (token !== undefined) offer(start, end, scores[token]);
      }
      if (!tokens.has(word.slice(start, characterEnd))) offer(start, characterEnd, unknownScore);
    }
    const parts = [];
    for (let end = word.length; end > 0; end = starts[end]) {
      parts.unshift({ text: word.slice(starts[end], end), start: starts[end], end });
    }
    return parts;
  };
  return { tokens, cut: (word) => withKnownTokens(cut(word), tokens, hasBytes, unknown, true) };
}

/** Return the tokens of parts; for a part that the vocabulary lacks, its bytes or the unknown token. */
function withKnownTokens(parts, tokens, hasBytes, unknown, fuses) {
  const result = [];
  for (const { text, start, end } of parts) {
    const token = tokens.get(text);
    const bytes = hasBytes && token === undefined ? Array.from(encoder.encode(text), (byte) => tokens.get(byteToken(byte))) : [];
    const last = result.at(-1);
    if (token !== undefined) result.push([token, start, end]);
    else if (bytes.length && !bytes.includes(undefined)) result.push(...bytes.map((byte) => [byte, start, end]));
    else if (fuses && last?.[0] === unknown && last[2] === start) last[2] = end;
    else result.push([unknown, start, end]);
  }
  return result;
}

// ---- from tokens to text
const DECODERS = {
  Sequence: ({ decoders }) => chained(decoders.map((part) => build(DECODERS, part, "decoder"))),
  Replace: ({ pattern, content }) => {
    const compiled = patternOf(pattern);
    return (texts) => texts.map((text) => text.replace(compiled, () => content));
  },
  ByteFallback: () => (texts) => {
    const joined = [];
    let bytes = [];
    const flush = () => {
      if (!bytes.length) return;
      try {
        joined.push(new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(Uint8Array.from(bytes)));
      } catch {
        joined.push("\ufffd".repeat(bytes.length));
      }
      bytes = [];
    };
    for (const text of texts) {
      const byte = /^<0x([0-9A-F]{2})>$/.exec(text);
      if (byte) bytes.push(parseInt(byte[1], 16));
      else {
        flush();
        joined.push(text);
      }
    }
    flush();
    return joined;
  },
  Fuse: () => (texts) => [texts.join("")],
  Strip: ({ content, start, stop }) => (texts) => texts.map((text) => {
    let [first, end] = [0, text.length];
    while (first < start && text[first] === content) first++;
    while (text.length - end < stop && end > first && text[end - 1] === content) end--;
    return text.slice(first, end);
  }),
  Metaspace: ({ replacement, prepend_scheme: scheme }) => (texts) => texts.map((text, index) => {
    const bare = index === 0 && scheme !== "never" && text.startsWith(replacement) ? text.slice(replacement.length) : text;
    return bare.replaceAll(replacement, " ");
  }),
};

/** Return a function from the id of a piece in the tokenizer to its id in the model: OPUS-MT has a vocabulary of its own. */
function idMapOf({ vocabulary, model }, pieces) {
  if (!vocabulary) return (id) => id;
  const ids = new Map(Object.entries(vocabulary));
  const texts = new Map(Array.from(pieces, ([text, id]) => [id, text]));
  const unknown = ids.get(model.unk_token ?? texts.get(model.unk_id));
  return (id) => ids.get(texts.get(id)) ?? unknown;
}

export class Tokenizer {
  /** source, target: what their tokenizer.json says; `cleanUp`: pairs of a string and its replacement in translations. */
  constructor(source, target = source, cleanUp = []) {
    const { normalizer, pre_tokenizer: cutter, post_processor: frame, model } = source;
    this.normalize = normalizer ? build(NORMALIZERS, normalizer, "normalizer") : (normal) => normal;
    this.cut = cutter ? build(PRE_TOKENIZERS, cutter, "pre-tokenizer") : (parts) => parts;
    this.model = build(MODELS, model, "model");
    this.words = new Map();
    this.idOf = idMapOf(source, this.model.tokens);
    const single = frame?.single ?? [{ Sequence: {} }];
    const index = single.findIndex((part) => part.Sequence);
    const special = (parts) => parts.flatMap((part) => frame.special_tokens[part.SpecialToken.id].ids).map(this.idOf);
    [this.before, this.after] = [special(single.slice(0, index)), special(single.slice(index + 1))];
    const bytes = Array.from(encoder.encode(RARE_SIGNS), (byte) => this.model.tokens.get(byteToken(byte)));
    this.byteIds = new Set(bytes.filter((token) => token !== undefined).map(this.idOf));
    this.forTarget = target === source ? this : new Tokenizer(target);
    const { model: { tokens }, idOf } = this.forTarget;
    this.texts = new Map(target.vocabulary
      ? Object.entries(target.vocabulary).map(([text, id]) => [id, text])
      : Array.from(tokens, ([text, id]) => [id, text]));
    this.hidden = new Set(target.added_tokens.filter((token) => token.special).map((token) => idOf(token.id)));
    this.decoder = build(DECODERS, target.decoder, "decoder");
    this.cleanUp = cleanUp;
  }

  /** Return the tokens of a text, and the span [start, end] of each; null for a special token. */
  encode(text) {
    const { normal, cuts } = this.cut({ normal: this.normalize(withOffsets(text)), cuts: new Set([0]) });
    const ids = [...this.before];
    const offsets = ids.map(() => null);
    const starts = [...cuts].filter((cut) => cut < normal.text.length).sort((left, right) => left - right);
    starts.forEach((start, index) => {
      for (const [token, first, end] of this.#pieces(normal.text.slice(start, starts[index + 1]))) {
        const span = [normal.starts[start + first], normal.ends[start + end - 1]];
        ids.push(token);
        offsets.push(span[0] < span[1] ? span : null);
      }
    });
    return { ids: [...ids, ...this.after], offsets: [...offsets, ...this.after.map(() => null)] };
  }

  /** Return the tokens of a translation. */
  encodeTarget(text) {
    return this.forTarget.encode(text).ids;
  }

  decode(ids) {
    const texts = ids.filter((token) => !this.hidden.has(token)).map((token) => this.texts.get(token) ?? "");
    return this.cleanUp.reduce((text, [pattern, replacement]) => text.replaceAll(pattern, replacement), this.decoder(texts).join(""));
  }

  /** Return the span of each token in a translation, looked up after the previous token; null if it is not there. */
  offsetsIn(translation, ids) {
    const { text, starts, ends } = asInSentencePiece(withOffsets(translation));
    let [offset, missed] = [0, 0];
    return ids.map((token) => {
      const { text: tokenText } = asInSentencePiece(withOffsets(this.decode([token]).replaceAll("▁", " ").trim()));
      const first = text.slice(0, offset + tokenText.length + missed + 8).indexOf(tokenText, offset);
      if (tokenText === "" || first < 0) {
        missed += tokenText.length;
        return null;
      }
      [offset, missed] = [first + tokenText.length, 0];
      return [starts[first], ends[offset - 1]];
    });
  }

  #pieces(word) {
    let tokens = this.words.get(word);
    if (!tokens) {
      tokens = this.model.cut(word).map(([id, start, end]) => [this.idOf(id), start, end]);
      if (this.words.size >= MAX_WORDS) this.words.clear();
      this.words.set(word, tokens);
    }
    return tokens;
  }
}
