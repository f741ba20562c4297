// What the modules beside this file make of the cases in a folder of vectors: the same cases, with their own answers.
//
// Standard input: what a model file has of languages, the rules of sentences and the words of checks. The arguments are the
// folder and a script of the page, which is not a module.
import { readFileSync } from "node:fs";
import { runInThisContext } from "node:vm";
import { linksOf, numberedLinks, restoredLinks } from "./alignment.js";
import { inSentenceCase, restoredCase } from "./casing.js";
import { checksOf, countCertainFaults, hasInventedMark } from "./checks.js";
import { coverPiece, coverText } from "./coverage.js";
import { labelIn, withoutCopiedEdges, withoutEnclosing } from "./edges.js";
import { withEntities, withoutEntities } from "./entities.js";
import {
  asLabel, colonOfLabel, mostFrequent, outsideItems, separatorWithQuotes, withCopiedNumbers, withEnding, withFrenchSpaces, withQuotes,
} from "./finishing.js";
import { COPIED_KINDS, ITEM } from "./interface.js";
import { isEmphasis, partsIn, Piece, writtenOf } from "./reading.js";
import { Form, formOf as readAs, itemsIn, keepEdits, knownForm, withoutTags } from "./rewriting.js";
import { restored } from "./restoring.js";
import { joinTranslations, Segmenter } from "./segments.js";
import { splitSentences, splitToFit, stripped } from "./sentences.js";
import { unknownTokens, Vocabulary } from "./vocabulary.js";

const vectors = (name) => JSON.parse(readFileSync(`${process.argv[2]}/${name}.json`));
const { rules, words_of_checks: wordsOfChecks, typography, groupings, entities: names, examples } = JSON.parse(readFileSync(0));
const answers = {};

/** Return what the rules make of a text. */
const formOf = (text, vocabulary, language = {}, groupings = ["", ""], options = {}) => (
  readAs(text, { vocabulary, rules: language, groupings, kinds: COPIED_KINDS, copies: true, normalises: true, ...options }));
/** Return a form as one piece. */
const whole = (form) => new Piece(form, partsIn(form, [0, form.text.length]));
/** Return a text as a model reads it of which items are kept, and nothing else changes. */
const kept = (text) => whole(new Form(text, keepEdits(text, COPIED_KINDS), COPIED_KINDS));
/** Return the text of a form, with the user's characters of its items and tags. */
function asWritten({ text, source, edits, offsets }) {
  let [written, end] = ["", 0];
  edits.forEach((edit, index) => {
    const stop = offsets[index] + (edit.model ?? ITEM).length;
    written += text.slice(end, offsets[index]) + (edit.back === null ? text.slice(offsets[index], stop) : source.slice(edit.start, edit.end));
    end = stop;
  });
  return written + text.slice(end);
}

function spansIn(text, parts) {
  let end = 0;
  return parts.map((part) => {
    const start = text.indexOf(part, end);
    end = start + part.length;
    return [start, end];
  });
}

const { cases: texts, fits } = vectors("sentences");
answers.sentences = {
  cases: texts.map(({ language, text }) => ({
    language, text, sentences: splitSentences(text, rules[String(language ?? "None")]).map((span) => text.slice(...span)),
  })),
  fits: fits.map(({ text, limit }) => ({
    text, limit,
    pieces: splitToFit(text, [0, text.length], (span) => Array.from(text.slice(...span)).length <= limit).map((span) => text.slice(...span)),
  })),
};

answers.certain = {
  cases: vectors("certain").cases.map(({ source, translation }) => ({
    source, translation, faults: countCertainFaults(source, translation, wordsOfChecks["en,de"]), invented: hasInventedMark(source, translation),
  })),
};

answers.copying = {
  cases: vectors("copying").cases.map(({ text, ...language }) => {
    const form = new Form(text, keepEdits(text, COPIED_KINDS), COPIED_KINDS);
    const span = withoutCopiedEdges(form.text, stripped(form.text, [0, form.text.length]), language.has_ordinals ?? true);
    const { start, end } = span[0] < span[1] ? new Piece(form, partsIn(form, span)) : { start: 0, end: 0 };
    return { text, ...language, translated: text.slice(start, end), items: itemsIn(text, COPIED_KINDS).map((item) => [item.kind, item.text]) };
  }),
};

answers.joining = {
  cases: vectors("joining").cases.map((joining) => {
    const { text, pieces, translations, copies } = joining;
    const spans = spansIn(text, pieces).map(([start, end]) => ({ start, end }));
    const joined = joinTranslations({ text, pieces: spans, copies }, translations);
    joined.starts.forEach((start, index) => {
      const written = joined.text.slice(start, start + translations[index].length);
      if (written !== translations[index]) throw new Error(`${start}: ${written}`);
    });
    return { ...joining, joined: joined.text };
  }),
};

const ofTypography = vectors("typography");
const typographyOf = ({ language }) => typography[String(language ?? "None")];
answers.typography = {
  quotes: ofTypography.quotes.map((example) => (
    { ...example, restored: outsideItems(example.translation, (text) => withQuotes(text, [...example.quotes], typographyOf(example).quotes)) })),
  spaces: ofTypography.spaces.map((example) => ({ ...example, spaced: outsideItems(example.translation, withFrenchSpaces) })),
  colons: ofTypography.colons.map((example) => ({ ...example, written: colonOfLabel(example.separator, typographyOf(example).colon) })),
  separators: ofTypography.separators.map((example) => (
    { ...example, written: separatorWithQuotes(example.separator, typographyOf(example).quotes, example.first, example.last) })),
};

const { calibration, cases: marks, alarmed } = vectors("marks");
answers.marks = {
  cases: marks.map((mark) => {
    const { text, tokens, unknown, received, translation, optional_words: optional, function_words: functional } = mark;
    const piece = {
      text,
      ids: tokens.map((_, token) => (unknown.includes(token) ? 0 : token + 3)),
      offsets: spansIn(text, tokens),
      form: { source: text },
      userSpan: (span) => span,
      isCopied: () => false,
      isAdded: () => false,
    };
    const lists = { optional_words: new Set(optional), function_words: new Set(functional) };
    const { words, score } = coverPiece(piece, received, { ...calibration, ...lists }, 0, translation);
    return { ...mark, words: words.map(({ word, covered, untranslated }) => ({ word, covered, untranslated })), score };
  }),
  alarmed: alarmed.map((given) => {
    const sourceText = given.sentences.map(({ source }) => source).join(" ");
    const translations = given.sentences.map(({ translation }) => translation);
    const pieces = given.sentences.map((sentence, index) => {
      const [start, end] = spansIn(sourceText, [sentence.source])[0];
      const wordsOfPart = (part, name, marks, offset) => Array.from(part.matchAll(/\w+/g), ({ 0: word, index: at }) => (
        { word, start: offset + at, end: offset + at + word.length, [name]: marks.includes(word) }));
      return {
        start, end, source: sentence.source, output: sentence.translation, translation: sentence.translation,
        targetStart: translations.slice(0, index).join(" ").length + Math.min(index, 1),
        covered: { words: wordsOfPart(sentence.source, "untranslated", sentence.untranslated, start), score: sentence.score, weight: 1 },
        support: { words: wordsOfPart(sentence.translation, "unsupported", sentence.unsupported, 0), score: 1 },
      };
    });
    const covered = coverText(pieces, given.threshold, false);
    const wordsWith = (list, name) => list.filter((word) => word[name]).map(({ word }) => word);
    return { ...given, marked: wordsWith(covered.words, "untranslated"), made_up: wordsWith(covered.target_words, "unsupported") };
  }),
};

// a segmenter whose tokens are words
function segmenterOfWords(unknown) {
  const words = ["<unk>", "</s>"];
  const idOf = (word) => (unknown.includes(word) ? 0 : words.includes(word) ? words.indexOf(word) : words.push(word) - 1);
  const encode = (part) => {
    const matches = [...part.matchAll(/\S+/g)];
    const offsets = matches.map(({ 0: word, index }) => [index, index + word.length]);
    return { ids: [...matches.map(([word]) => idOf(word)), 1], offsets: [...offsets, null] };
  };
  const decode = (ids) => ids.filter((token) => token !== 1).map((token) => words[token]).join(" ");
  const segmenter = new Segmenter(new Vocabulary({ encode, decode, byteIds: new Set() }, 0, [1]), rules.en, Infinity, new Set([0, 1]));
  return { segmenter, encode, decode, words };
}

// a model with the vectors' outputs; a word attends to itself, in any case
function translated({ text, unknown, outputs }) {
  const { segmenter, encode, decode, words } = segmenterOfWords(unknown);
  const bare = (token) => words[token].replace(/^[.,:!()]+|[.,:!()]+$/g, "").toUpperCase();
  const document = segmenter.document(text);
  const writes = new Map(outputs);
  const inputs = [];
  const write = (piece) => {
    inputs.push(decode(piece.ids));
    piece.written = writes.get(decode(piece.ids)) ?? "";
    const retries = segmenter.retries(piece, piece.written);
    return retries.length ? retries.flatMap(write) : [piece];
  };
  document.pieces = document.pieces.flatMap(write);
  const translations = document.pieces.map((piece) => {
    const target = encode(piece.written).ids;
    const isSame = (left, right) => Number(bare(left) !== "" && bare(left) === bare(right));
    const align = () => target.map((word) => piece.ids.map((token) => isSame(word, token)));
    return restored(piece, target, decode, align);
  });
  const unexpected = inputs.filter((part) => !writes.has(part)); // with other settings, a model may read others of `outputs`
  return { text, unknown, outputs: unexpected.length ? unexpected : outputs, translation: joinTranslations(document, translations).text };
}

const { tags, copied, counts } = vectors("restoring");
answers.restoring = { tags: tags.map(translated), copied: copied.map(translated), counts: counts.map(translated) };

// a vocabulary that has these texts; it cuts others into characters, and has a piece of a byte for each of `bytes`
function vocabularyOf(texts, bytes = []) {
  const tokens = ["<unk>", "</s>", ...texts, ...bytes];
  const byteIds = new Set(Array.from(bytes, (sign) => tokens.lastIndexOf(sign)));
  const encode = (text) => {
    const pieces = tokens.includes(text) ? [text] : Array.from(text);
    let end = 0;
    const offsets = pieces.map((piece) => [end, (end += piece.length)]);
    return { ids: [...pieces.map((piece) => Math.max(tokens.indexOf(piece), 0)), 1], offsets: [...offsets, null] };
  };
  const decode = (ids) => ids.filter((token) => token > 1).map((token) => tokens[token]).join("");
  return new Vocabulary({ encode, decode, encodeTarget: (text) => encode(text).ids, byteIds }, 0, [1]);
}

const { characters, words, plain, invisible, cases: forms, given } = vectors("normal");
const vocabulary = vocabularyOf([...characters, ...words]);
const normalForm = (text, of = vocabulary) => formOf(text, of, {}, ["", ""], { kinds: [], copies: false });
answers.normal = {
  cases: forms.map(({ text, back }) => {
    normalForm(text); // the second call reads the caches
    const form = normalForm(text);
    const sourceOf = (part) => form.userSpan([form.text.indexOf(part), form.text.indexOf(part) + part.length]);
    return { text, form: form.text, back: back.map(([part]) => [part, text.slice(...sourceOf(part))]) };
  }),
  given: given.map(({ text }) => ({ text, form: knownForm(text, vocabulary) })),
  plain: Object.fromEntries(Object.entries(plain).map(([form, variants]) => [form, Array.from(variants, (variant) => normalForm(`1${variant}b`).text.slice(1, -1))])),
  invisible: Array.from(invisible, (character) => normalForm(`b${character}b`).text.slice(1, -1)).join(""),
};

const lacked = vectors("lacked");
const byteVocabulary = vocabularyOf("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 \n.,!?'\"-", lacked.bytes);
answers.lacked = {
  cases: lacked.cases.map(({ text, splits }) => {
    const segmenter = new Segmenter(byteVocabulary, rules.en, Infinity, new Set([0, 1]));
    const { form, pieces } = segmenter.document(text, { splits });
    const signs = form.edits.filter(({ row }) => row === "lacked sign").map(({ back }) => back);
    const unknown = [...unknownTokens(byteVocabulary, text, byteVocabulary.tokenizer.encode(text))];
    return { text, ...(splits === false && { splits }), unknown, read: pieces.map((piece) => piece.text), signs };
  }),
};

const capitals = vectors("capitals");
const letters = vocabularyOf([...new Set(capitals.cases.flatMap(({ text, lowercase }) => [...text, ...(lowercase ?? "")]))]);
answers.capitals = {
  cases: capitals.cases.map(({ text }) => {
    const form = formOf(text, letters, rules.None);
    return { text, lowercase: form.lines.length ? asWritten(form) : null };
  }),
  translations: capitals.translations.map(({ text }) => ({ text, capitals: outsideItems(text, (part) => restoredCase(part, "capitals")) })),
};

const casing = vectors("casing");
const caseAt = ({ lines }, offset) => lines.find(({ start, end }) => start <= offset && offset < end)?.row ?? null;
const casedVocabulary = vocabularyOf([...casing.words, ...casing.characters]);
answers.casing = {
  cases: casing.cases.map(({ text, lines: parts }) => {
    const form = formOf(text, casedVocabulary, rules.en);
    const lines = form.lines.length === parts.length ? parts.map(([part]) => [part, caseAt(form, text.indexOf(part))]) : form.lines;
    return { text, read: asWritten(form), lines };
  }),
  translations: casing.translations.map(({ text, case: sourceCase }) => (
    { text, case: sourceCase, restored: outsideItems(text, (part) => restoredCase(part, sourceCase, casedVocabulary)) })),
};

const dotless = vectors("dotless_i");
const vocabularyWithDotlessI = vocabularyOf([...dotless.words, ...dotless.characters]);
answers.dotless_i = {
  cases: dotless.cases.map(({ text, language }) => (
    { text, language, read: inSentenceCase(text, vocabularyWithDotlessI, rules[language]).text })),
  translations: dotless.translations.map(({ text, language, case: sourceCase }) => (
    { text, language, case: sourceCase, restored: restoredCase(text, sourceCase, vocabularyWithDotlessI, typography[language].dotless_i) })),
  labels: dotless.labels.map(({ text, language }) => ({ text, language, restored: asLabel(text, "X", typography[language].dotless_i) })),
};

const edges = vectors("edges");
const PRINTABLE = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~ \t\n\r\v\f"; // as in Python
const segmenter = new Segmenter(vocabularyOf([...PRINTABLE, ..."他来了走我"]), rules.en, Infinity, new Set([0, 1]));
answers.edges = {
  cases: edges.cases.map(({ text }) => {
    const { pieces } = segmenter.document(text);
    return { text, read: pieces.map((piece) => piece.text).join(""), ending: pieces[0]?.ending ?? null };
  }),
  translations: edges.translations.map(({ text, ending }) => ({ text, ending, restored: outsideItems(text, (part) => withEnding(part, ending)) })),
};

const { forms: readings, cases: casedTexts, translations: withCharacters } = vectors("entities");
const printable = vocabularyOf([...PRINTABLE, ..."áéó"]);
answers.entities = {
  forms: readings.map(({ text, back }) => {
    const form = normalForm(text, printable);
    if (form.userSpan([0, form.text.length]).join() !== [0, text.length].join()) throw new Error(text);
    const sourceOf = (part) => form.userSpan([form.text.indexOf(part), form.text.indexOf(part) + part.length]);
    return { text, form: form.text, back: back.map(([part]) => [part, text.slice(...sourceOf(part))]) };
  }),
  cases: casedTexts.map(({ text }) => ({ text, read: asWritten(formOf(text, printable, rules.en)) })),
  translations: withCharacters.map(({ text, source }) => ({ text, source, written: withEntities(text, source) })),
};
answers.characters = names.map((entity) => withoutEntities(entity));

const ascii = vocabularyOf([...PRINTABLE]);
const ofExamples = new Segmenter(vocabularyOf(["so", "of", "is", "it", ...PRINTABLE, "€", "à"]), rules.en, Infinity, new Set([0, 1]), [groupings.en, groupings.pt]);
answers.examples = Object.fromEntries(Object.entries(examples).map(([id, example]) => (
  [id, id === "french" ? withFrenchSpaces(example) : ofExamples.document(example).pieces.map((piece) => piece.text).join(" ")])));
const numbers = vectors("numbers");
const groupingsOf = (languages) => languages.split("-").map((code) => groupings[code] ?? "");
answers.numbers = {
  cases: numbers.cases.map(({ text, languages }) => (
    { text, languages, read: whole(formOf(text, ascii, rules.None, groupingsOf(languages))).parts.map(writtenOf).join("") })),
  translations: numbers.translations.map(({ text, source, languages }) => (
    { text, source, languages, written: outsideItems(text, (part) => withCopiedNumbers(part, source, groupingsOf(languages))) })),
};

answers.forced = {
  cases: vectors("forced").cases.map(({ text, translation }) => {
    const { segmenter: wordSegmenter, decode, encode } = segmenterOfWords([]);
    const [piece] = wordSegmenter.document(text, { isForced: true }).pieces;
    const source = piece ? piece.offsets.filter((span) => span).map((span) => text.slice(...piece.userSpan(span))) : null;
    const target = piece ? decode(encode(withoutTags(translation)).ids) : null;
    return { text, translation, source, read: piece ? decode(piece.ids) : null, target };
  }),
};

const labels = vectors("labels");
answers.labels = {
  labels: labels.labels.map(({ text, label }) => {
    const word = text.indexOf(label ?? text.split(" ", 1)[0]);
    const start = /["']/.test(text[word - 1]) ? word - 1 : word;
    const end = start + /^[^ \n]*/.exec(text.slice(start))[0].length;
    const span = labelIn(text, withoutEnclosing(text, [start, end]));
    return { text, label: span && text.slice(...span) };
  }),
  forms: labels.forms.map(({ text }) => ({ text, forms: segmenterOfWords([]).segmenter.document(text).pieces[0].forms.map((form) => form.text) })),
  votes: labels.votes.map(({ source, answers: texts }) => (
    { source, answers: texts, translation: asLabel(texts[mostFrequent(texts)], source) })),
  translations: labels.translations.map(({ text, source }) => ({ text, source, restored: outsideItems(text, (part) => asLabel(part, source)) })),
};

const alignment = vectors("alignment");
const spanIn = (text, part) => spansIn(text, [part])[0];
answers.alignment = {
  links: alignment.links.map(({ text, translation, rows }) => {
    const { segmenter: wordSegmenter, encode, decode } = segmenterOfWords([]);
    const [piece] = wordSegmenter.document(text, { isForced: true }).pieces;
    piece.hypothesis = { ids: encode(translation).ids.slice(0, -1) };
    const links = linksOf(piece, decode, rows, translation);
    return { text, translation, rows, links: links.map(([source, target]) => [text.slice(...source), translation.slice(...target)]) };
  }),
  moved: alignment.moved.map(({ text, output, translation, links }) => {
    const spans = links.map(([word, outputWord]) => [spanIn(text, word), spanIn(output, outputWord)]);
    const moved = restoredLinks(kept(text), spans, output, translation);
    return { text, output, translation, links, moved: moved.map(([source, target]) => [text.slice(...source), translation.slice(...target)]) };
  }),
  numbered: alignment.numbered.map(({ text, pieces: parts, translations, copies, links }) => {
    const pieces = spansIn(text, parts).map(([start, end]) => ({ start, end }));
    const joined = joinTranslations({ text, pieces, copies }, translations);
    const spans = links.map((pairs, index) => pairs.map(([word, translated]) => (
      [spanIn(parts[index], word).map((offset) => offset + pieces[index].start), spanIn(translations[index], translated)])));
    return { text, pieces: parts, translations, copies, links, alignment: numberedLinks({ text, pieces, copies }, joined, spans) };
  }),
};

answers.emphasis = {
  cases: vectors("emphasis").cases.map(({ text }) => {
    const piece = kept(text);
    return { text, read: piece.text, marks: piece.parts.filter(isEmphasis).map(writtenOf) };
  }),
};

answers.checks = {
  cases: vectors("checks").cases.map(({ source, translation, languages }) => ({
    source, translation, languages,
    checks: checksOf(source, translation, wordsOfChecks[languages.join()]).map(({ kind, missing, added }) => [kind, missing, added]),
  })),
};

const problemsOf = runInThisContext(`${readFileSync(process.argv[3])}; ${readFileSync(process.argv[4])}; problemsOf;`);
answers.problems = {
  cases: vectors("problems").cases.map(({ source, translation, coverage }) => ({
    source, translation, coverage,
    problems: problemsOf(coverage, source, translation).map(({ level, message, spans }) => (
      [level, message, spans.map(({ side, start, end }) => [side, start, end])])),
  })),
};

process.stdout.write(JSON.stringify(answers));
