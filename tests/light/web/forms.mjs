// What the table of rules makes of texts: for each its form, its edits, and whether these undone give the text back.
//
// Standard input: texts, the characters of a vocabulary, `rules` of sentences, and the grouping signs of two languages.
import { readFileSync } from "node:fs";
import { COPIED_KINDS } from "./interface.js";
import { formOf, inForm } from "./rewriting.js";
import { Vocabulary } from "./vocabulary.js";

const { texts, characters, rules, groupings } = JSON.parse(readFileSync(0));
const ids = new Map(["", "", ...characters].map((character, id) => [character, id]));

function encode(text) {
  let end = 0;
  const parts = Array.from(text);
  const offsets = parts.map((part) => [end, (end += part.length)]);
  return { ids: [...parts.map((part) => ids.get(part) ?? 0), 1], offsets: [...offsets, null] };
}

const vocabulary = new Vocabulary({ encode, encodeTarget: (text) => encode(text).ids, decode: () => "a", byteIds: new Set() }, 0, [1]);
const call = { vocabulary, rules, groupings, kinds: COPIED_KINDS, copies: true, normalises: true };

/** Whether a form is its text with each edit in place, but for the case of letters. */
function isUndone({ text, source, edits }) {
  let [expected, end] = ["", 0];
  for (const edit of edits) {
    expected += source.slice(end, edit.start) + inForm(edit);
    ({ end } = edit);
  }
  const [read, written] = [text, expected + source.slice(end)].map((part) => part.replaceAll("İ", "I").toLowerCase());
  return read === written;
}

process.stdout.write(JSON.stringify(texts.map((text) => {
  const form = formOf(text, call);
  const edits = form.edits.map(({ row, start, end, model, back }) => [row, text.slice(start, end), model, back]).filter(([, written, model]) => written !== model);
  return [form.text, edits, isUndone(form)];
})));
