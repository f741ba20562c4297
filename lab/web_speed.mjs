// The web module beside Bergamot's WebAssembly worker: sentences per second of user CPU, in turns, in one process of node.
//
//     npm install --prefix DIR --ignore-scripts @browsermt/bergamot-translator
//     node lab/web_speed.mjs MODEL.capsule SENTENCES --bergamot DIR --student FOLDER
//
// MODEL.capsule is of `capsule-mt convert FOLDER OUT --to web`, and FOLDER a student of Firefox Translations. Both take a
// sentence at a time, greedily and with the shortlist.

import { cpSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { cpus, tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { Worker } from "node:worker_threads";

import { Translator, TranslatorWorker } from "../capsule_mt/web/index.js";

const { values, positionals: [model, sentences] } = parseArgs({
  allowPositionals: true,
  options: {
    bergamot: { type: "string" },
    student: { type: "string" },
    sentences: { type: "string", default: "64" },
    repeats: { type: "string", default: "5" },
  },
});
const texts = readFileSync(sentences, "utf8").split("\n").filter((line) => line.trim()).slice(0, Number(values.sentences));

/** What asks the worker of a package of Bergamot, which has a folder of a student. */
async function bergamot(packages, folder) {
  const copy = mkdtempSync(join(tmpdir(), "bergamot-")); // its package calls these files modules, which they are not
  cpSync(join(packages, "node_modules/@browsermt/bergamot-translator/worker"), copy, { recursive: true });
  const worker = new Worker(join(copy, "translator-worker.js"));
  let number = 0;
  const ask = (name, ...args) => new Promise((resolve, reject) => {
    const id = ++number;
    const listen = (answer) => {
      if (answer.id !== id) return;
      worker.off("message", listen);
      if (answer.error) reject(new Error(answer.error.message));
      else resolve(answer.result);
    };
    worker.on("message", listen);
    worker.postMessage({ id, name, args });
  });
  const file = (start, end) => readFileSync(join(folder, readdirSync(folder).find((name) => name.startsWith(start) && name.endsWith(end))));
  const pair = { from: "xx", to: "yy" };
  await ask("initialize", { cacheSize: 0 });
  const config = { "gemm-precision": "int8shiftAlphaAll" };
  await ask("loadTranslationModel", pair, { model: file("model", ".bin"), shortlist: file("lex", ".bin"), vocabs: [file("vocab", ".spm")], config });
  return {
    translate: async (text) => (await ask("translate", { models: [pair], texts: [{ text, html: false }] }))[0].target.text,
    close: async () => {
      await worker.terminate();
      rmSync(copy, { recursive: true });
    },
  };
}

const options = { beams: 1, splitSentences: false };
const here = await Translator.load(model);
const inWorker = await TranslatorWorker.load(model);
const runs = {
  "capsule-mt-web": async (text) => here.translate(text, options).text,
  "capsule-mt-web, in a worker": async (text) => (await inWorker.translate(text, options)).text,
};
if (here.marks) runs["capsule-mt-web, marks"] = async (text) => here.translate(text, { ...options, coverage: true }).text;
const other = values.bergamot && (await bergamot(values.bergamot, values.student));
if (other) runs["Bergamot's worker"] = other.translate;

const seconds = Object.fromEntries(Object.keys(runs).map((name) => [name, []]));
const written = {};
for (let turn = 0; turn <= Number(values.repeats); turn++) {
  for (const [name, run] of Object.entries(runs)) {
    const before = process.cpuUsage().user;
    written[name] = [];
    for (const text of texts) written[name].push(await run(text));
    if (turn) seconds[name].push((process.cpuUsage().user - before) / 1e6); // the first is for warming up
  }
}
const median = (numbers) => numbers.sort((one, more) => one - more)[numbers.length >> 1];
const first = median(seconds["capsule-mt-web"]);
console.log(`${cpus()[0].model}, node ${process.versions.node}, ${texts.length} sentences, ${values.repeats} turns`);
for (const [name, own] of Object.entries(seconds)) {
  const time = median(own);
  const same = written[name].filter((text, place) => text === written["capsule-mt-web"][place]).length;
  console.log(`${name}: ${(texts.length / time).toFixed(1)} sentences/s, ${(time / first).toFixed(2)} times as long, ${same} texts the same`);
}
inWorker.close();
await other?.close();
