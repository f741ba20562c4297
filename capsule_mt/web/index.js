// Translate in this thread (`Translator`), or in a worker (`TranslatorWorker`), which leaves a page responsive.

export { Translator } from "./translator.js";

/** A translator in a worker of its own: the same, but that it answers with promises. */
export class TranslatorWorker {
  static async load(model) {
    const translator = new TranslatorWorker(await newWorker());
    let address = model instanceof URL ? model.href : model;
    // a worker has another base for addresses
    if (typeof address === "string" && typeof document === "object") address = new URL(address, document.baseURI).href;
    try {
      return Object.assign(translator, await translator.#ask("load", { model: address }));
    } catch (error) {
      translator.close();
      throw error;
    }
  }

  #worker;
  #waiting = new Map();
  #number = 0;
  #ended = null;

  constructor(worker) {
    this.#worker = worker;
    const settle = ({ number, value, error }) => {
      const { resolve, reject } = this.#waiting.get(number);
      this.#waiting.delete(number);
      if (error === undefined) resolve(value);
      else reject(new Error(error));
    };
    const fail = (error) => this.#end(`the worker failed: ${error.message}`);
    if (worker.on) worker.on("message", settle).on("error", fail); // node
    else Object.assign(worker, { onmessage: ({ data }) => settle(data), onerror: fail });
  }

  translate(texts, options = {}) {
    return this.#ask("translate", { texts, options });
  }

  cover(text, translation) {
    return this.#ask("cover", { text, translation });
  }

  /** End the worker, whatever it does. */
  close() {
    this.#worker.terminate();
    this.#end("the translator was closed");
  }

  #end(reason) {
    this.#ended = reason;
    for (const { reject } of this.#waiting.values()) reject(new Error(reason));
    this.#waiting.clear();
  }

  #ask(name, asked) {
    if (this.#ended !== null) return Promise.reject(new Error(this.#ended));
    const number = this.#number++;
    return new Promise((resolve, reject) => {
      this.#waiting.set(number, { resolve, reject });
      this.#worker.postMessage({ number, name, ...asked });
    });
  }
}

async function newWorker() {
  const file = new URL("worker.js", import.meta.url);
  if (typeof Worker === "function") return new Worker(file, { type: "module" });
  return new (await import("node:worker_threads")).Worker(file);
}
