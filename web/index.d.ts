import type { SearchOptions } from "./interface.js";

/** How to search, by the names of transformers; by default as the model was released. */
export type { SearchOptions };

/** A file of `capsule-mt convert --to web`: its bytes, or its address (a URL; in node, a path is one too). */
export type Model = string | URL | ArrayBuffer | Uint8Array;

export interface LoadingOptions {
  /**
   * Threads that share the work on a text, in node and in a page that is `crossOriginIsolated`; elsewhere there is one.
   * Translations do not depend on it. By default 1.
   */
  threads?: number;
  /** A file of a reverse model, which translates in the other direction, for `support`. */
  reverse?: Model;
}

export interface TranslationOptions extends SearchOptions {
  /** Mark the words that were left out; the model needs `marks`. By default false. */
  coverage?: boolean;
  /** Mark also the words that were made up, which needs a `reverse`. By default false. */
  support?: boolean;
  /** Return which words of the text and of its translation belong together. By default false. */
  alignment?: boolean;
  /** Sentences that go through the model at once; by default 16. */
  batch_size?: number;
  /** Translate sentence by sentence; by default true. */
  split_sentences?: boolean;
  /**
   * Copy what is not a sentence, such as numbers and bullets, and in sentences URLs, tags, placeholders, code, emoji and words
   * that the vocabulary does not have. Translate lines in capitals and lowercase as sentences, and give the translation
   * the case back. False: the model reads the text as it is, and its output is the translation. By default true.
   */
  copy?: boolean;
  /** Score only the tokens that the words of a source are likely to become, if the model has a list; by default true. */
  shortlist?: boolean;
}

export interface CoverOptions {
  /** Find also the words that were made up, which needs a `reverse`. By default false. */
  support?: boolean;
  /**
   * By default, words are marked only in sentences that raise an alarm (`below_threshold`), which calibrations have only for
   * Python's "verified", so none are: by attention alone, most marks of given translations are wrong. Any of these names marks
   * words; unlike in Python, the marks are the same for all three.
   */
  marks?: "sure" | "likely" | "all";
}

export interface Translation {
  text: string;
  /** The mean log-probability of a token; null for a blank text. */
  score: number | null;
  /** The tokens of each sentence, end tokens included. */
  tokens: number[][];
  /** What was changed in the text before the model read it. */
  edits: Edit[];
  /** With `coverage` or `support`: what was left out, or made up. */
  coverage?: Coverage;
  /** With `alignment`: pairs of a word of the text and a word of the translation, as indices of what is between spaces. */
  alignment?: [number, number][];
}

/** Characters `start` to `end` of the text, as JavaScript counts them. */
export interface Span {
  start: number;
  end: number;
}

/** Characters of the text that the model read otherwise, by a row of the table of rules. */
export interface Edit extends Span {
  row: string;
  /** What the model read instead; "" for nothing, null if no model read it. */
  model: string | null;
  /** What the translation copies; null if it has whatever the model wrote. */
  back: string | null;
}

export interface Word extends Span {
  word: string;
  /** How much of it was translated, from 0 to 1. */
  covered: number;
  untranslated: boolean;
}

/** A word of the translation, with its offsets there. */
export interface TargetWord extends Span {
  word: string;
  /** How much the source supports it, from 0 to 1. */
  supported: number;
  unsupported: boolean;
}

export interface Sentence extends Span {
  score: number;
  /** Whether it has probably lost something, where the model has a threshold for that. */
  below_threshold?: boolean;
}

/** A fault that a rule finds: the translation lacks `missing`, or has `added`. */
export interface Check {
  kind: "numbers" | "months" | "weekdays" | "names" | "signs" | "placeholders" | "tags" | "urls" | "end" | "doubled" | "untranslated"
    | "brackets" | "negation" | "sentences";
  missing: string;
  added: string;
}

/** How completely a text was translated, with the fields of the server's answers. */
export interface Coverage {
  /** How complete the translation seems, from 0 to 1. */
  score: number;
  words: Word[];
  /** With `support`: how far the source supports the translation, from 0 to 1, and the words of the translation. */
  support?: number;
  target_words?: TargetWord[];
  sentences: Sentence[];
  /** Phrases that the translation says twice in a row, and the source does not. */
  repetitions: string[];
  /** Faults that rules find. */
  checks: Check[];
  /** What marked the words: marks are unverified unless it is "verified". */
  method?: "verified" | "attention" | "deletion";
}

export class Translator {
  static load(model: Model, options?: LoadingOptions): Promise<Translator>;
  /** The codes of the languages. */
  readonly source: string;
  readonly target: string;
  /** Whether the model can mark words. */
  readonly marks: boolean;
  translate(text: string, options?: TranslationOptions): Translation;
  translate(texts: string[], options?: TranslationOptions): Translation[];
  /** Return what a translation of a text leaves out and makes up; the text is read as one sentence, without tags. */
  cover(text: string, translation: string, options?: CoverOptions): Coverage;
  /** End the threads; needed only where there are several. */
  close(): void;
}

/** The same in a worker of its own. */
export class TranslatorWorker {
  static load(model: Model, options?: LoadingOptions): Promise<TranslatorWorker>;
  readonly source: string;
  readonly target: string;
  readonly marks: boolean;
  translate(text: string, options?: TranslationOptions): Promise<Translation>;
  translate(texts: string[], options?: TranslationOptions): Promise<Translation[]>;
  cover(text: string, translation: string, options?: CoverOptions): Promise<Coverage>;
  /** End the worker, whatever it does. */
  close(): void;
}
