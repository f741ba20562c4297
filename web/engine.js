// The engine: a module of WebAssembly, and the only file that calls it.

import { FIELDS, MEMORY, MAX_SLOTS, OPERATIONS, OPTIONS, STACK, TYPES, VERSION } from "./interface.js";
import { WorkerClient } from "./workers.js";

const NO_MEMORY = -1;
// bytes of a field of the request: whole numbers, pointers, floats
const BYTES = { i: 8, p: 4, f: 4 };
const decoder = new TextDecoder();

const compiled = new Map(); // modules by their address, once for all models

/** Return the bytes of a file by its address: a URL, or in node also a path. */
export async function readBytes(address) {
  const url = typeof address === "string" && /^[a-z]{2,}:/i.test(address) ? new URL(address) : address;
  const isFile = typeof url === "string" || url.protocol === "file:";
  if (isFile && typeof process === "object" && process.versions?.node) {
    const { readFile } = await import("node:fs/promises");
    return new Uint8Array(await readFile(url));
  }
  const response = await fetch(url);
  if (!response.ok) throw new Error(`${address}: the answer has the status ${response.status}`);
  return new Uint8Array(await response.arrayBuffer());
}

// a module with a function that returns a lane of i32x4.relaxed_dot_i8x16_i7x16_add of bytes 127 and -1
const PROBE = Uint8Array.of(
  0, 97, 115, 109, 1, 0, 0, 0, // magic, version
  1, 5, 1, 96, 0, 1, 127, // type () -> i32
  3, 2, 1, 0, // function
  7, 5, 1, 1, 112, 0, 0, // export p
  10, 23, 1, 21, 0, 65, 255, 0, 253, 15, 65, 127, 253, 15, 65, 0, 253, 17, 253, 147, 2, 253, 27, 0, 11,
);

/** Whether the host's product of bytes is exact, the second one unsigned (as on x86 with AVX-VNNI) or signed (as on arm64). */
function multipliesBytes() {
  if (!WebAssembly.validate(PROBE)) return false;
  const product = new WebAssembly.Instance(new WebAssembly.Module(PROBE)).exports.p();
  return product === 4 * 127 * 255 || product === -4 * 127;
}

function compile(hasThreads) {
  const [plain, relaxed] = hasThreads
    ? [new URL("engine.threads.wasm", import.meta.url), new URL("engine.threads.relaxed.wasm", import.meta.url)]
    : [new URL("engine.wasm", import.meta.url), new URL("engine.relaxed.wasm", import.meta.url)];
  const { href } = multipliesBytes() ? relaxed : plain;
  if (!compiled.has(href)) compiled.set(href, readBytes(href).then((bytes) => WebAssembly.compile(bytes)));
  return compiled.get(href);
}

/** Return the exports of a new instance of a module; several with one memory are threads. */
export async function newInstance(module, memory) {
  return (await WebAssembly.instantiate(module, { math: Math, env: { memory } })).exports;
}

/** The kind and the offset of each field of `request_t`, as C lays it out. */
const { layout: LAYOUT, size: REQUEST_BYTES } = (() => {
  const layout = new Map();
  let size = 0;
  for (const [name, kind] of Object.entries(FIELDS)) {
    size = Math.ceil(size / BYTES[kind]) * BYTES[kind];
    layout.set(name, { kind, offset: size });
    size += BYTES[kind];
  }
  return { layout, size: Math.ceil(size / 8) * 8 };
})();

export class Engine {
  /** Pack the weights of a `ModelFile`; use several threads where memory can be shared. */
  static async create(file, threads) {
    const hasThreads = threads > 1 && (globalThis.crossOriginIsolated ?? typeof process === "object");
    const module = await compile(hasThreads);
    const memory = hasThreads ? new WebAssembly.Memory({ ...MEMORY, shared: true }) : null;
    const exports = await newInstance(module, memory);
    exports._initialize();
    if (exports.engine_version() !== VERSION) {
      throw new Error(`the engine has version ${exports.engine_version()}, not ${VERSION}: build it again`);
    }
    const engine = new Engine(exports, file);
    await Promise.all(Array.from({ length: hasThreads ? threads - 1 : 0 }, () => engine.#addThread(module, memory)));
    return engine;
  }

  /** Add a thread, unless no worker can be started. */
  async #addThread(module, memory) {
    const worker = await WorkerClient.create();
    try {
      const stack = this.#check(this.exports.malloc(STACK) || NO_MEMORY);
      await worker.ask("prepare", module, memory, stack + STACK);
      worker.ask("work").catch(() => {}); // when it is closed
      worker.unref();
      this.threads.push(worker);
    } catch {
      worker.close();
    }
  }

  threads = [];

  constructor(exports, file) {
    const { program } = file.model;
    this.exports = exports;
    this.tokens = file.model.tokens;
    this.model = this.#callWithArrays([new Uint8Array(1)], (name) =>
      exports.engine_new(name, BigInt(program.vocabulary), BigInt(program.num_caches)) || NO_MEMORY);
    program.linears.forEach(([outputs, inputs], linearIndex) => {
      this.#check(exports.engine_add_linear(this.model, BigInt(outputs), BigInt(inputs), TYPES.I8));
      const name = `linears.${linearIndex}`;
      const bias = file.tensor(`${name}.bias`);
      this.#callWithCodes(file.matrix(name, outputs, inputs), [outputs, inputs], [bias], (codes, magnitudes, bias) =>
        exports.engine_pack(
          this.model, linearIndex, 0n, BigInt(outputs), codes, TYPES.I8, magnitudes, bias, TYPES[file.type(`${name}.bias`) ?? "F32"],
        ));
    });
    program.vectors.forEach((vector, vectorIndex) => this.#addVector(file, vector, vectorIndex));
    for (const [space, width] of program.buffers) {
      this.#check(exports.engine_add_buffer(this.model, space, BigInt(width)));
    }
    const sides = [program.encoder, program.decoder].map(packedOperations);
    this.#callWithArrays(sides, (encoder, decoder) => exports.engine_set_programs(
      this.model, encoder, BigInt(program.encoder.length), decoder, BigInt(program.decoder.length), program.logits,
    ));
  }

  #addVector(file, vector, vectorIndex) {
    const { exports, model } = this;
    const [kind, ...sizes] = vector;
    if (kind === "positions") {
      const positions = sizes.length < 4 ? [...sizes, 0] : sizes; // a file of before 0.3.1 has no start
      this.#check(exports.engine_add_positions(model, ...positions.map(BigInt)));
    } else if (kind === "packed") { // the rows of a linear map
      const { largest: magnitudes } = file.matrix(`linears.${sizes[0]}`, ...file.model.program.linears[sizes[0]]);
      this.#callWithArrays([magnitudes], (address) => exports.engine_add_packed_table(model, sizes[0], address));
    } else if (kind === "table") {
      const name = `vectors.${vectorIndex}`;
      const add = (type) => (rows, magnitudes) => exports.engine_add_table(model, rows, ...sizes.map(BigInt), type, magnitudes);
      const matrix = file.matrix(name, ...sizes);
      if (matrix) this.#callWithCodes(matrix, sizes, [], add(TYPES.I8));
      else this.#callWithArrays([file.tensor(name), null], add(TYPES[file.type(name)]));
    } else {
      this.#callWithArrays([file.tensor(`vectors.${vectorIndex}`)], (values) =>
        exports.engine_add_vector(model, values, BigInt(sizes[0]), TYPES.F32));
    }
  }

  /** Decode a matrix into the engine's memory, and call with the addresses of its codes, its magnitudes and the arrays. */
  #callWithCodes(matrix, [rows, columns], arrays, call) {
    const { sizes, largest: magnitudes } = matrix;
    const tableSize = matrix.frequencies.length / sizes.length; // two bytes for each code from -n to n
    const largestCode = BigInt((tableSize / 2 - 1) / 2);
    const packedClasses = sizes.length > 1 ? matrix.classes : null;
    const inputs = [new Uint8Array(rows * columns), matrix.stream, matrix.frequencies, packedClasses, magnitudes, ...arrays];
    return this.#callWithArrays(inputs, (codes, stream, frequencies, classes, ...arrayAddresses) => {
      let start = stream;
      sizes.forEach((size, index) => {
        const table = frequencies + index * tableSize;
        this.#check(this.exports.engine_expand(
          start, BigInt(size), table, largestCode, classes, index, codes, BigInt(rows), BigInt(columns),
        ));
        start += size;
      });
      return call(codes, ...arrayAddresses);
    });
  }

  close() {
    for (const thread of this.threads) thread.close();
  }

  /**
   * Search for the best translations of each source; `options` has a value for each of `OPTIONS`.
   *
   * Return `numReturned` of each, the best first: tokens, their log-probabilities, and, for a head, its attention [T][S].
   */
  search(sources, { limits, forcesEnd, options, numReturned = 1, head = null, shortlist = null }) {
    const maxLength = Math.max(...limits);
    const width = Math.max(...sources.map((source) => source.length));
    const numRows = sources.length * numReturned;
    const numTokens = numRows * maxLength;
    const [tokens, lengths] = [new Int32Array(2 * numTokens), new Int32Array(2 * numRows)]; // numbers of 64 bits
    const logProbs = new Float32Array(numTokens);
    const attention = head && new Float32Array(numTokens * width);
    this.#translate({
      ...this.#common(sources, width, head),
      limits: int64s(limits),
      forced: Int32Array.from(forcesEnd, Number),
      ...optionFields(options),
      scored: 1,
      num_return_sequences: numReturned,
      longest: maxLength,
      ...(shortlist && shortlistFields(sources, shortlist)),
    }, { tokens, translation_lengths: lengths, scores: new Float32Array(numRows), log_probs: logProbs, attention });
    return sources.map((source, index) => Array.from({ length: numReturned }, (_, rank) => {
      const row = index * numReturned + rank;
      const [start, length] = [row * maxLength, lengths[2 * row]];
      return {
        ids: Array.from({ length }, (_, step) => tokens[2 * (start + step)]),
        logProbs: Array.from(logProbs.subarray(start, start + length)),
        attention: attention && rowsOf(attention, start, length, width, source.length),
      };
    }));
  }

  /** Score translations by a forced pass: log-probabilities [T], and the attention of a head [T][S]. */
  force(sources, targets, head) {
    const width = Math.max(...sources.map((source) => source.length));
    const lengths = targets.map((target) => target.length);
    const numTokens = lengths.reduce((sum, length) => sum + length, 0);
    const logProbs = new Float32Array(numTokens);
    const attention = head && new Float32Array(numTokens * width);
    this.#translate({
      ...this.#common(sources, width, head),
      limits: int64s(lengths),
      targets: int64s(targets.flat()),
      target_lengths: int64s(lengths),
      longest: Math.max(...lengths),
      num_beams: 1,
      num_return_sequences: 1,
    }, { target_log_probs: logProbs, attention });
    let end = 0;
    return sources.map((source, row) => {
      const [start, length] = [end, lengths[row]];
      end += length;
      return {
        logProbs: Array.from(logProbs.subarray(start, end)),
        attention: attention && rowsOf(attention, start, length, width, source.length),
      };
    });
  }

  #common(sources, width, head) {
    const { start, end, pad } = this.tokens;
    return {
      num_sources: sources.length,
      words: int64s(sources.flat()),
      lengths: int64s(sources.map((source) => source.length)),
      longest_source: width,
      start_token: start,
      end_token: end,
      pad_token: pad,
      layer: head ? head[0] : -1,
      head: head ? head[1] : -1,
      num_threads: 1 + this.threads.length,
    };
  }

  /** Call the engine with the fields of a request, and fill in the arrays of its results. */
  #translate(fields, results) {
    const entries = Object.entries({ ...fields, ...results }).filter(([, value]) => value !== null);
    const arrays = entries.filter(([, value]) => ArrayBuffer.isView(value));
    this.#callWithArrays([new Uint8Array(REQUEST_BYTES), ...arrays.map(([, array]) => array)], (request, ...pointers) => {
      const { memory } = this.exports;
      const view = new DataView(memory.buffer, request);
      for (const [name, value] of [...entries, ...arrays.map(([name], index) => [name, pointers[index]])]) {
        const { kind, offset } = LAYOUT.get(name);
        if (kind === "f") view.setFloat32(offset, value, true);
        else view.setInt32(offset, value, true);
        if (kind === "i") view.setInt32(offset + 4, value >> 31, true);
      }
      const code = this.exports.engine_translate(this.model, request, 0);
      arrays.forEach(([name, array], index) => {
        if (name in results) array.set(new array.constructor(memory.buffer, pointers[index], array.length));
      });
      return code;
    });
  }

  /** Call with the addresses of copies of arrays in the engine's memory, 0 for null; return the call's result. */
  #callWithArrays(arrays, call) {
    const { exports } = this;
    let size = 0;
    const offsets = arrays.map((array) => {
      const offset = size;
      if (array) size += Math.ceil(array.byteLength / 64 + 1) * 64; // vectors may be read beyond the end
      return offset;
    });
    const start = exports.malloc(size) >>> 0;
    if (!start) throw new Error(TOO_LARGE);
    try {
      const bytes = new Uint8Array(exports.memory.buffer, start);
      arrays.forEach((array, index) => {
        if (array) bytes.set(new Uint8Array(array.buffer, array.byteOffset, array.byteLength), offsets[index]);
      });
      return this.#check(call(...arrays.map((array, index) => (array ? start + offsets[index] : 0))));
    } catch (error) {
      throw error instanceof WebAssembly.RuntimeError ? new Error(TOO_LARGE, { cause: error }) : error;
    } finally {
      exports.free(start);
    }
  }

  /** Return a result of the engine, or throw the error that it stands for. */
  #check(result) {
    if (result === NO_MEMORY) throw new Error(TOO_LARGE);
    if (result >= 0) return result;
    const bytes = new Uint8Array(this.exports.memory.buffer, this.exports.engine_error());
    throw new Error(`the engine refused: ${decoder.decode(bytes.slice(0, bytes.indexOf(0)))}`);
  }
}

/** The options of a search as fields of a request. */
function optionFields(options) {
  return Object.fromEntries(Object.entries(OPTIONS).flatMap(([name, { kind, choices }]) => {
    const value = options[name];
    if (kind === "tokens") return [[name, Int32Array.from(value)], [`num_${name}`, value.length]];
    return [[name, choices ? choices[value] : Number(value)]];
  }));
}

const TOO_LARGE = "no memory for the engine";

/** Return whole numbers as int64, each in two numbers of 32 bits. */
function int64s(values) {
  const pairs = new Int32Array(2 * values.length);
  values.forEach((value, index) => [pairs[2 * index], pairs[2 * index + 1]] = [value, value >> 31]);
  return pairs;
}

/** Return rows of a matrix of `width` columns, cut to `count` columns. */
const rowsOf = (values, start, length, width, count) =>
  Array.from({ length }, (_, row) => values.slice((start + row) * width, (start + row) * width + count));

/** Return operations, each a name and slots, as C reads them. */
function packedOperations(operations) {
  const view = new DataView(new ArrayBuffer(operations.length * 4 * (1 + MAX_SLOTS)));
  const names = Object.keys(OPERATIONS);
  operations.forEach(([name, ...slots], index) => {
    const kinds = OPERATIONS[name];
    if (kinds?.length !== slots.length) {
      throw new Error(`this engine does not know the operation ${name} with ${slots.length} slots: convert the model again`);
    }
    const start = index * 4 * (1 + MAX_SLOTS);
    view.setInt32(start, names.indexOf(name), true);
    slots.forEach((slot, slotIndex) => {
      const offset = start + 4 * (1 + slotIndex);
      if (kinds[slotIndex] === "r") view.setFloat32(offset, slot, true);
      else view.setInt32(offset, slot, true);
    });
  });
  return new Uint8Array(view.buffer);
}

/** Return the tokens that each source may become, which `shortlist` returns ascending, as fields of a request. */
function shortlistFields(sources, shortlist) {
  const lists = sources.map((source) => shortlist(source));
  const candidates = lists.length === 1 ? lists[0] : Int32Array.from(new Set(lists.flatMap((list) => [...list]))).sort();
  const candidateIndices = new Int32Array(lists.reduce((sum, list) => sum + list.length, 0));
  let numIndices = 0;
  for (const list of lists) {
    let candidateIndex = 0;
    for (const token of list) {
      while (candidates[candidateIndex] !== token) candidateIndex++;
      candidateIndices[numIndices++] = candidateIndex;
    }
  }
  return {
    candidates,
    num_candidates: candidates.length,
    list_lengths: int64s(lists.map((list) => list.length)),
    candidate_indices: candidateIndices,
  };
}
