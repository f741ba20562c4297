// A model as `capsule-mt convert --to web` writes it: a safetensors file, whose metadata say how to translate with it.

const FORMAT = 3;

export class ModelFile {
  /** model, tokenizers: what the metadata say. */
  constructor(bytes) {
    const damaged = new Error("the model is not a file of `capsule-mt convert --to web`, or it is cut off");
    if (bytes.byteLength < 8) throw damaged;
    const length = Number(new DataView(bytes.buffer, bytes.byteOffset).getBigUint64(0, true));
    if (length > bytes.byteLength - 8) throw damaged;
    let header;
    try {
      header = JSON.parse(new TextDecoder().decode(bytes.subarray(8, 8 + length)));
      this.model = JSON.parse(header.__metadata__.model);
      this.tokenizers = JSON.parse(header.__metadata__.tokenizers);
    } catch {
      throw damaged;
    }
    if (this.model.format !== FORMAT) {
      throw new Error(`the model has the format ${this.model.format}, not ${FORMAT}: convert it again`);
    }
    this.header = header;
    this.data = bytes.subarray(8 + length);
  }

  /** Return the bytes of a tensor, or null. */
  tensor(name) {
    if (!(name in this.header)) return null;
    const [start, end] = this.header[name].data_offsets;
    if (end > this.data.byteLength) throw new Error("the model is cut off");
    return this.data.subarray(start, end);
  }

  /** Return the type of a tensor, such as "F16". */
  type(name) {
    return this.header[name]?.dtype;
  }

  /** Return the numbers of a tensor of whole numbers. */
  numbers(name) {
    const bytes = this.tensor(name).slice();
    return this.header[name].dtype === "U16" ? new Uint16Array(bytes.buffer) : new Int32Array(bytes.buffer);
  }
}
