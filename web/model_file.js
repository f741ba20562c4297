// A model as `capsule-mt convert --to web` writes it: a safetensors file, whose metadata say how to translate with it.

import { MODEL_FORMAT } from "./interface.js";

const ARRAYS = { I32: Int32Array, F32: Float32Array };

export class ModelFile {
  /** model, tokenizers: what the metadata say, with the contents of the tensors that `tokenizers` name. */
  constructor(bytes) {
    const damaged = new Error("the model is not a file of `capsule-mt convert --to web`, or it is cut off");
    if (bytes.byteLength < 8) throw damaged;
    const length = Number(new DataView(bytes.buffer, bytes.byteOffset).getBigUint64(0, true));
    if (length > bytes.byteLength - 8) throw damaged;
    this.data = bytes.subarray(8 + length);
    try {
      this.header = JSON.parse(new TextDecoder().decode(bytes.subarray(8, 8 + length)));
      this.model = JSON.parse(this.header.__metadata__.model);
    } catch {
      throw damaged;
    }
    if (this.model.format !== MODEL_FORMAT) {
      throw new Error(`the model has the format ${this.model.format}, not ${MODEL_FORMAT}: convert it again`);
    }
    this.tokenizers = JSON.parse(this.header.__metadata__.tokenizers, (key, value) => (
      typeof value !== "string" ? value : key === "scores" ? this.numbers(value)
        : key === "precompiled_charsmap" ? this.tensor(value).slice() : value));
  }

  /** Return the bytes of a tensor, or null. */
  tensor(name) {
    if (!(name in this.header)) return null;
    const [start, end] = this.header[name].data_offsets;
    if (end > this.data.byteLength) throw new Error("the model is cut off: download it again");
    return this.data.subarray(start, end);
  }

  /** Return the type of a tensor, such as "F16". */
  type(name) {
    return this.header[name]?.dtype;
  }

  /** Return the numbers of a tensor. */
  numbers(name) {
    const bytes = this.tensor(name).slice();
    return new ARRAYS[this.type(name)](bytes.buffer);
  }

  /**
   * Return a matrix of codes [outputs, inputs] as the streams of its classes, and the largest magnitude of each row; or
   * null. See models/entropy_coding.py of the Python package.
   */
  matrix(name, outputs, inputs) {
    if (!(`${name}.stream` in this.header)) return null;
    const [stream, frequencies, classes] = ["stream", "frequencies", "classes"].map((part) => this.tensor(`${name}.${part}`));
    const [columns, ...sizes] = this.numbers(`${name}.layout`);
    const total = sizes.reduce((sum, size) => sum + size, 0);
    const packed = sizes.length > 1 ? Math.ceil(outputs / 2) : 0;
    const symbols = frequencies.length / 2 / sizes.length; // of the codes from -n to n
    if (columns !== inputs || total !== stream.length || classes.length !== packed || symbols % 2 !== 1) {
      throw new Error(`the model's ${name} is damaged: download or convert it again`);
    }
    return { stream, frequencies, classes, sizes, largest: this.#magnitudes(name, outputs) };
  }

  /** Return the largest magnitude of each row of a matrix. */
  #magnitudes(name, rows) {
    const magnitudes = this.numbers(`${name}.largest`);
    const runs = this.numbers(`${name}.runs`);
    const largest = runs.length === magnitudes.length ? new Float32Array(rows) : magnitudes;
    let row = 0;
    if (largest !== magnitudes) magnitudes.forEach((magnitude, run) => largest.fill(magnitude, row, row += runs[run]));
    if (largest.length !== rows || (row && row !== rows)) throw new Error(`the model's ${name} is damaged: download or convert it again`);
    return largest;
  }
}
