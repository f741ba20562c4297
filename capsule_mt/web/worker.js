// A worker that holds a translator; `TranslatorWorker` of index.js asks it.

import { Translator } from "./translator.js";

let translator = null;
const calls = {
  async load({ model }) {
    translator = await Translator.load(model);
    return { source: translator.source, target: translator.target, marks: translator.marks };
  },
  translate: ({ texts, options }) => translator.translate(texts, options),
  cover: ({ text, translation }) => translator.cover(text, translation),
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
