// What the modules beside this file read in a model's file: the shortlists of sources, and the tokens of texts.
import { readFileSync } from "node:fs";
import { ModelFile } from "./model_file.js";
import { Tokenizer } from "./tokenizer.js";
import { shortlistOf } from "./translator.js";

const { path, sources, texts } = JSON.parse(readFileSync(0));
const file = new ModelFile(new Uint8Array(readFileSync(path)));
const shortlist = shortlistOf(file, 8);
const tokenizer = new Tokenizer(...file.tokenizers);
const lists = sources.map((source) => [...shortlist(source)]);
const encoded = texts.map((text) => tokenizer.encode(text));
const [ids, offsets] = ["ids", "offsets"].map((name) => encoded.map((tokens) => tokens[name]));
process.stdout.write(JSON.stringify({ lists, ids, offsets }));
