// The normal form of a text: what the model should see, and the way back to the characters of the user's text.
//
// The same as capsule_mt/text/normal.py; tests/vectors/normal.json holds for both. Places are those of JavaScript's strings.

const INVISIBLE = /[\u00ad\u034f\u061c\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff]/g;
const JOINERS = "\u200c\u200d";
const LAST_WITHOUT_JOINERS = "\u052f"; // Latin, Greek and Cyrillic end here
const PLAIN = {
  "'": "\u2018\u2019\u201a\u201b\u2032\u2035\u2039\u203a\u02bb\u02bc\u02b9\u00b4\uff07\u05f3",
  '"': "\u201c\u201d\u201e\u201f\u2033\u2036\u00ab\u00bb\u301d\u301e\u301f\u05f4",
  "-": "\u2010\u2011\u2012\u2013\u2014\u2015\u2212\u2043\u2e3a\u2e3b",
  "...": "\u2026\u22ef",
  " ": "\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000",
  "/": "\u2044\u2215",
  "!!": "\u203c",
  "!?": "\u2049",
  "?!": "\u2048",
};
const PLAIN_FORMS = new Map(Object.entries(PLAIN).flatMap(([plain, all]) => Array.from(all, (one) => [one, plain])));
// what NFKC replaces and leaves what is said as it is, unlike m² and ½
const COMPATIBLE = /^[\u0132\u0133\u01c4-\u01cc\u01f1-\u01f3\u2103\u2109\u2113\u2116\u2160-\u217f\ufb00-\ufb4f\ufb50-\ufdcf\ufdf0-\ufdfc\ufe70-\ufefc\uff01-\uffee\u{1d400}-\u{1d7ff}]/u;
const WORD = /[\p{L}\p{Nl}\p{No}]+/gu;
const BEGINS = /(?:^|[.!?\u2026]\s)[^\p{L}\p{N}_]*$/u; // what is before the first word of a sentence
const REACH = 16; // characters before a word that are looked at
const EXTENDS = /^[\p{M}\u1160-\u11ff]/u; // may be composed with the character before
const ASCII = /^[\0-\x7f]*$/;
const [MOST_ANSWERS, LONGEST_KEPT] = [20000, 64]; // that are kept, of texts of so many characters

export class NormalForm {
  /** `spans`: of each character of the form, those of the user's text that it stands for; null where both are the same. */
  constructor(source, text = source, spans = null) {
    [this.source, this.text, this.spans] = [source, text, spans];
  }

  /** Return the characters of the user's text behind some of the form. */
  sourceSpan([start, end]) {
    if (!this.spans) return [start, end];
    if (start < end) return [this.spans[start][0], this.spans[end - 1][1]];
    const at = start < this.spans.length ? this.spans[start][0] : this.source.length;
    return [at, at];
  }
}

/** What normal forms ask of a tokenizer. Its answers are kept. */
export class Vocabulary {
  /** `unknown`: the token of what it lacks; `special`: tokens without text. */
  constructor(tokenizer, unknown, special) {
    [this.tokenizer, this.unknown, this.special] = [tokenizer, unknown, new Set(special)];
    [this.known, this.pieces, this.forms] = [new Map(), new Map(), new Map()];
    this.unchanged = new Set(); // characters that are their own form
  }

  /** Whether the vocabulary has the characters of a text, inside of a word. */
  has(text) {
    return kept(this.known, text, () => {
      const { ids, offsets } = this.tokenizer.encode(`a${text}a`);
      const isByte = (place, other) => place && other && place.join() === other.join()
        && Array.from(`a${text}a`.slice(...place)).length === 1;
      const isBroken = (token) => this.tokenizer.decode([ids[token]]).includes("\ufffd");
      return !ids.includes(this.unknown) && !offsets.some((place, token) =>
        isByte(place, offsets[token + 1]) && (isBroken(token) || isBroken(token + 1)));
    });
  }

  /** Whether a word is one piece of the vocabulary. */
  hasPiece(word) {
    return kept(this.pieces, word, () => {
      const ids = this.tokenizer.encode(word).ids.filter((token) => !this.special.has(token));
      return ids.length === 1 && ids[0] !== this.unknown;
    });
  }

  normalForm(source) {
    if (ASCII.test(source)) return new NormalForm(source);
    const isComposed = source.normalize("NFC") === source;
    if (isComposed && Array.from(source).every((one) => this.#isUnchanged(one))) return new NormalForm(source);
    let text = "";
    const spans = [];
    for (const [start, end] of clusters(source, isComposed)) {
      const form = this.#formOf(source, start, end);
      text += form;
      for (let unit = 0; unit < form.length; unit++) spans.push([start, end]);
    }
    const plain = text;
    text = plain.replace(WORD, (word, at) => this.#inSmallLetters(word, plain.slice(Math.max(at - REACH, 0), at)));
    return text === source ? new NormalForm(source) : new NormalForm(source, text, spans);
  }

  #isUnchanged(character) {
    return ASCII.test(character) || this.unchanged.has(character);
  }

  #formOf(source, start, end) {
    const cluster = source.slice(start, end);
    if (ASCII.test(cluster)) return cluster;
    if (JOINERS.includes(cluster)) {
      const around = source.slice(Math.max(start - 1, 0), start) + source.slice(end, end + 1);
      const isBetween = /^\p{L}{2}$/u.test(around) && Array.from(around).every((one) => one <= LAST_WITHOUT_JOINERS);
      return isBetween ? "" : cluster;
    }
    return kept(this.forms, cluster, () => {
      const form = this.#plain(cluster);
      if (form === cluster && Array.from(cluster).length === 1 && this.has(cluster)) this.unchanged.add(cluster);
      return form;
    });
  }

  #plain(cluster) {
    const visible = cluster.replace(INVISIBLE, "");
    const composed = visible.normalize("NFC");
    const alike = Array.from(composed, (one) => (COMPATIBLE.test(one) ? one.normalize("NFKC") : one)).join("");
    const plain = Array.from(alike, (one) => PLAIN_FORMS.get(one) ?? one).join("");
    const candidates = Array.from(visible).length === 1 ? [visible, composed] : [composed, visible];
    return [...candidates, alike, plain].find((form) => this.has(form)) ?? candidates[0];
  }

  /** Return a word that the vocabulary lacks as it has it: without a capital, or without an accent. */
  #inSmallLetters(word, before) {
    const letters = Array.from(word);
    if (letters.every((one) => this.#isUnchanged(one)) || this.has(word) || !/^\p{Lu}/u.test(word)) return word;
    const small = letters[0].toLowerCase() + letters.slice(1).join("");
    const bare = letters.map((letter) => (this.has(letter) ? letter : Array.from(letter.normalize("NFD"))[0])).join("");
    const isKnown = (form) => this.hasPiece(form) || (BEGINS.test(before) && form === small && this.has(form));
    return [small, word.toLowerCase(), bare].find((form) => form.length === word.length && isKnown(form)) ?? word;
  }
}

function kept(answers, text, find) {
  if (text.length > LONGEST_KEPT) return find();
  if (!answers.has(text)) {
    const answer = find();
    if (answers.size >= MOST_ANSWERS) answers.clear();
    answers.set(text, answer);
  }
  return answers.get(text);
}

/** Return the characters of a text, each with the marks after it where some are not composed with it. */
function clusters(text, isComposed) {
  const found = [];
  let start = 0;
  for (const character of text) {
    const end = start + character.length;
    if (!isComposed && found.length && EXTENDS.test(character)) found.at(-1)[1] = end;
    else found.push([start, end]);
    start = end;
  }
  return found;
}
