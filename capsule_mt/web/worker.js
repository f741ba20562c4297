// A worker that holds translators; `TranslatorWorker` of index.js asks it.

import { Translator } from "./translator.js";

const translators = new Map();
const calls = {
  async load({ id, model }) {
    const translator = await Translator.load(model);
    translators.set(id, translator);
    return { source: translator.source, target: translator.target, marks: translator.marks };
  },
  translate: ({ id, texts, options }) => translators.get(id).translate(texts, options),
  cover: ({ id, text, translation }) => translators.get(id).cover(text, translation),
};

async function answer({ number, name, ...asked }) {
  try {
    return { number, value: await calls[name](asked) };
  } catch (error) {
    return { number, error: error.message };
  }
}

if (typeof self === "object") {
  self.onmessage = async ({ data }) => self.postMessage(await answer(data));
} else { // node
  const { parentPort } = await import("node:worker_threads");
  parentPort.on("message", async (data) => parentPort.postMessage(await answer(data)));
}
