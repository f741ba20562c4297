// Calls functions in a worker.

export class WorkerClient {
  /** Start worker.js. */
  static async create() {
    const file = new URL("worker.js", import.meta.url);
    if (typeof Worker === "function") return new WorkerClient(new Worker(file, { type: "module" }));
    return new WorkerClient(new (await import("node:worker_threads")).Worker(file));
  }

  #worker;
  #pending = new Map();
  #nextId = 0;
  #ended = null;

  constructor(worker) {
    this.#worker = worker;
    const settle = ({ id, value, error }) => {
      const { resolve, reject } = this.#pending.get(id);
      this.#pending.delete(id);
      if (error === undefined) resolve(value);
      else reject(new Error(error));
    };
    const fail = (error) => this.#end(`the worker failed: ${error.message}`);
    if (worker.on) worker.on("message", settle).on("error", fail); // node
    else Object.assign(worker, { onmessage: ({ data }) => settle(data), onerror: fail });
  }

  /** Call a function of worker.js; return a promise of its result. */
  ask(name, ...parameters) {
    if (this.#ended !== null) return Promise.reject(new Error(this.#ended));
    const id = this.#nextId++;
    return new Promise((resolve, reject) => {
      this.#pending.set(id, { resolve, reject });
      this.#worker.postMessage({ id, name, parameters });
    });
  }

  /** In node, let the program end although the worker runs. */
  unref() {
    this.#worker.unref?.();
  }

  /** End the worker, whatever it does. */
  close() {
    this.#worker.terminate();
    this.#end("the translator was closed");
  }

  #end(reason) {
    this.#ended = reason;
    for (const { reject } of this.#pending.values()) reject(new Error(reason));
    this.#pending.clear();
  }
}
