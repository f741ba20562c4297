// Translate in this thread (`Translator`), or in a worker (`TranslatorWorker`), which leaves a page responsive.

import { WorkerClient } from "./workers.js";

export { Translator } from "./translator.js";

/** A translator in a worker of its own: the same methods, which return promises. */
export class TranslatorWorker {
  static async load(model, { reverse, ...options } = {}) {
    const translator = new TranslatorWorker(await WorkerClient.create());
    try {
      return Object.assign(translator, await translator.#worker.ask("load", forWorker(model), { reverse: forWorker(reverse), ...options }));
    } catch (error) {
      translator.close();
      throw error;
    }
  }

  #worker;

  constructor(worker) {
    this.#worker = worker;
  }

  translate(texts, options) {
    return this.#worker.ask("translate", texts, options);
  }

  cover(text, translation, options) {
    return this.#worker.ask("cover", text, translation, options);
  }

  /** End the worker, whatever it does. */
  close() {
    this.#worker.close();
  }
}

/** Return a model with its full address: a worker would resolve a relative one against its own file. */
function forWorker(model) {
  if (model instanceof URL) return model.href;
  return typeof model === "string" && typeof document === "object" ? new URL(model, document.baseURI).href : model;
}
