// The web module beside Bergamot's WebAssembly worker and onnxruntime-web: sentences per second of user CPU, in turns, in
// one process of node.
//
//     npm install --prefix DIR --ignore-scripts @browsermt/bergamot-translator onnxruntime-web
//     node lab/web_speed.mjs MODEL.capsule SENTENCES --packages DIR --student FOLDER
//     node lab/web_speed.mjs MODEL.capsule SENTENCES --packages DIR --onnx EXPORT
//
// MODEL.capsule is of `capsule-mt convert FOLDER OUT --to web`; FOLDER is a student of Firefox Translations, and EXPORT what
// `capsule-mt convert CHECKPOINT EXPORT --to onnx --int8` wrote, at commit d7acef5, the last that has it. All take a sentence
// at a time, greedily; Bergamot and the web module with the shortlist.

import { cpSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { cpus, tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { parseArgs } from "node:util";
import { Worker } from "node:worker_threads";

import { Translator, TranslatorWorker } from "../web/index.js";

const { values, positionals: [model, sentences] } = parseArgs({
  allowPositionals: true,
  options: {
    packages: { type: "string" },
    student: { type: "string" },
    onnx: { type: "string" },
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

/** onnxruntime-web in a bare loop, on one thread, with the tokens of the web module. */
async function onnx(packages, folder, { tokenizer, engine, defaults }) {
  const ort = await import(pathToFileURL(join(packages, "node_modules/onnxruntime-web/dist/ort.node.min.mjs")));
  ort.env.wasm.numThreads = 1;
  const [encoder, decoder] = await Promise.all(["encoder_model", "decoder_model_merged"].map((name) =>
    ort.InferenceSession.create(readFileSync(join(folder, `onnx/${name}_quantized.onnx`)))));
  const { start, end } = engine.tokens;
  const int64s = (numbers) => new ort.Tensor("int64", BigInt64Array.from(numbers, BigInt), [1, numbers.length]);
  const empty = Object.fromEntries(decoder.inputMetadata.filter(({ name }) => name.startsWith("past_key_values.")).map(({ name, shape }) => {
    const sizes = shape.map((size) => (size === "batch_size" ? 1 : typeof size === "string" ? 0 : size));
    return [name, new ort.Tensor("float32", new Float32Array(sizes.reduce((product, size) => product * size, 1)), sizes)];
  }));
  return async (text) => {
    const { ids } = tokenizer.encode(text);
    const mask = int64s(ids.map(() => 1));
    const states = (await encoder.run({ input_ids: int64s(ids), attention_mask: mask })).last_hidden_state;
    const outputs = [];
    let [past, last] = [empty, start];
    while (last !== end && outputs.length < Math.min(3 * ids.length + 30, defaults.longest_target ?? Infinity)) {
      const { logits, ...present } = await decoder.run({
        encoder_attention_mask: mask,
        input_ids: int64s([last]),
        encoder_hidden_states: states,
        use_cache_branch: new ort.Tensor("bool", [outputs.length > 0], [1]),
        ...past,
      });
      past = Object.fromEntries(Object.entries(present).map(([name, value]) => [name.replace("present", "past_key_values"), value]));
      for (const token of defaults.suppressed) logits.data[token] = -Infinity;
      outputs.push(last = logits.data.reduce((best, value, token) => (value > logits.data[best] ? token : best), 0));
    }
    return tokenizer.decode(outputs);
  };
}

const options = { num_beams: 1, split_sentences: false };
const translator = await Translator.load(model);
const inWorker = await TranslatorWorker.load(model);
const runs = {
  "capsule-mt-web": async (text) => translator.translate(text, options).text,
  "capsule-mt-web, in a worker": async (text) => (await inWorker.translate(text, options)).text,
};
if (translator.marks) runs["capsule-mt-web, marks"] = async (text) => translator.translate(text, { ...options, coverage: true }).text;
const bergamotTranslator = values.student && (await bergamot(values.packages, values.student));
if (bergamotTranslator) runs["Bergamot's worker"] = bergamotTranslator.translate;
if (values.onnx) runs["onnxruntime-web"] = await onnx(values.packages, values.onnx, translator);

const seconds = Object.fromEntries(Object.keys(runs).map((name) => [name, []]));
const translations = {};
for (let turn = 0; turn <= Number(values.repeats); turn++) {
  for (const [name, run] of Object.entries(runs)) {
    const start = process.cpuUsage().user;
    translations[name] = [];
    for (const text of texts) translations[name].push(await run(text));
    if (turn) seconds[name].push((process.cpuUsage().user - start) / 1e6); // the first is for warming up
  }
}
const median = (numbers) => numbers.sort((left, right) => left - right)[numbers.length >> 1];
const baseline = median(seconds["capsule-mt-web"]);
console.log(`${cpus()[0].model}, node ${process.versions.node}, ${texts.length} sentences, ${values.repeats} turns`);
for (const [name, turns] of Object.entries(seconds)) {
  const time = median(turns);
  const numSame = translations[name].filter((text, index) => text === translations["capsule-mt-web"][index]).length;
  console.log(`${name}: ${(texts.length / time).toFixed(1)} sentences/s, ${(time / baseline).toFixed(2)} times as long, ${numSame} texts the same`);
}
inWorker.close();
await bergamotTranslator?.close();
