// A worker, and the promises of its answers.

export class AskedWorker {
  /** Start worker.js. */
  static async create() {
    const file = new URL("worker.js", import.meta.url);
    if (typeof Worker === "function") return new AskedWorker(new Worker(file, { type: "module" }));
    return new AskedWorker(new (await import("node:worker_threads")).Worker(file));
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

  /** Have it call a function of worker.js. */
  ask(name, ...given) {
    if (this.#ended !== null) return Promise.reject(new Error(this.#ended));
    const number = this.#number++;
    return new Promise((resolve, reject) => {
      this.#waiting.set(number, { resolve, reject });
      this.#worker.postMessage({ number, name, given });
    });
  }

  /** In node, let the program end without it. */
  unref() {
    this.#worker.unref?.();
  }

  /** End it, whatever it does. */
  close() {
    this.#worker.terminate();
    this.#end("the translator was closed");
  }

  #end(reason) {
    this.#ended = reason;
    for (const { reject } of this.#waiting.values()) reject(new Error(reason));
    this.#waiting.clear();
  }
}
