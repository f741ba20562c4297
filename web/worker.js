// A worker: it holds a translator, or is a thread of an engine. `WorkerClient` calls it.

import { newInstance } from "./engine.js";
import { Translator } from "./translator.js";

let translator = null;
let thread = null;
const calls = {
  async load(model, options) {
    translator = await Translator.load(model, options);
    return { source: translator.source, target: translator.target, marks: translator.marks };
  },
  translate: (texts, options) => translator.translate(texts, options),
  cover: (text, translation, options) => translator.cover(text, translation, options),
  async prepare(module, memory, stack) {
    thread = await newInstance(module, memory);
    thread.__stack_pointer.value = stack;
  },
  work: () => thread.team_work(), // until the worker is ended
};

async function answer({ id, name, parameters }) {
  try {
    return { id, value: await calls[name](...parameters) };
  } catch (error) {
    return { id, error: error.message };
  }
}

if (typeof self === "object") {
  self.onmessage = async ({ data }) => self.postMessage(await answer(data));
} else { // node
  const { parentPort } = await import("node:worker_threads");
  parentPort.on("message", async (data) => parentPort.postMessage(await answer(data)));
}
