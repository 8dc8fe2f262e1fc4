
let compiled = null;

/** The WebAssembly module, compiled when it is first asked for. */
export function module() {
  return (compiled ??= new WebAssembly.Module(decoded(MODULE)));
}

/**
 * One row of the cell, with states of its own. What its calls give are views of its memory: the next
 * call writes over them.
 */
export class Cell {
  /**
   * weights: the bytes of a file of weights, an ArrayBuffer or a view of one, or null for those that
   * are in the module. steps: how many steps a block has at most. module: what `module()` gave, also
   * in another thread.
   */
  constructor(weights = null, { steps = 128, module: code = module() } = {}) {
    this.steps = steps;
    this.exports = new WebAssembly.Instance(code).exports;
    this.state = this.exports.__heap_base.value;
    let end = this.state + this.exports[`${NAME}_bytes`]();
    const place = (bytes) => {
      const start = (end + 63) & ~63;
      end = start + bytes;
      return start;
    };
    this.places = [...INPUTS, ...OUTPUTS].map(({ size, kind }) => place(steps * size * kind.BYTES_PER_ELEMENT));
    const file = weights === null ? 0 : place(weights.byteLength);
    const memory = this.exports.memory;
    const missing = end - memory.buffer.byteLength;
    if (missing > 0) memory.grow(Math.ceil(missing / 65536));
    if (weights !== null) {
      const view = ArrayBuffer.isView(weights)
        ? new Uint8Array(weights.buffer, weights.byteOffset, weights.byteLength)
        : new Uint8Array(weights);
      new Uint8Array(memory.buffer).set(view, file);
    }
    const wrong = this.exports[`${NAME}_init`](this.state, file, weights === null ? 0 : weights.byteLength);
    if (wrong) throw new Error(`weights of ${NAME}: ${ERRORS[wrong]}`);
    const arrays = [...INPUTS, ...OUTPUTS].map(({ size, kind }, i) => new kind(memory.buffer, this.places[i], steps * size));
    this.inputs = arrays.slice(0, INPUTS.length);
    this.outputs = arrays.slice(INPUTS.length);
    this.views = [1, steps].map((n) => this.#views(n));
  }

  /** One step: an array, or for one number that number, for each of INPUTS. Gives the output, or
   * where there are several an object of them. */
  step(...given) {
    return this.#run(1, given);
  }

  /** Several steps, `this.steps` at most: every array has those of a step, step after step. */
  block(...given) {
    return this.#run(given.length ? given[0].length / INPUTS[0].size : 0, given);
  }

  /** States as they are before the first step. */
  reset() {
    this.exports[`${NAME}_reset`](this.state);
  }

  #run(n, given) {
    if (!Number.isInteger(n) || n < 1 || n > this.steps)
      throw new RangeError(`${n} steps: 1 to ${this.steps} can be made, new Cell(weights, { steps }) says how many`);
    for (let i = 0; i < INPUTS.length; i++) {
      const { name, size } = INPUTS[i];
      if (typeof given[i] === "number" && n * size === 1) this.inputs[i][0] = given[i];
      else if (given[i]?.length === n * size) this.inputs[i].set(given[i]);
      else throw new RangeError(`${name}: ${n * size} numbers are wanted, ${given[i]?.length} were given`);
    }
    this.exports[`${NAME}_block`](this.state, n, ...this.places);
    return n === 1 ? this.views[0] : n === this.steps ? this.views[1] : this.#views(n);
  }

  #views(n) {
    const views = this.outputs.map((array, i) => array.subarray(0, n * OUTPUTS[i].size));
    return views.length === 1 ? views[0] : Object.fromEntries(views.map((view, i) => [OUTPUTS[i].name, view]));
  }
}

// AudioWorklets have no atob
function decoded(text) {
  const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const values = new Uint8Array(128);
  for (let i = 0; i < 64; i++) values[letters.charCodeAt(i)] = i;
  const padding = text.endsWith("==") ? 2 : text.endsWith("=") ? 1 : 0;
  const bytes = new Uint8Array((text.length / 4) * 3 - padding);
  for (let i = 0, at = 0; i < text.length; i += 4) {
    let four = 0;
    for (let k = 0; k < 4; k++) four = (four << 6) | values[text.charCodeAt(i + k)];
    for (let shift = 16; shift >= 0 && at < bytes.length; shift -= 8) bytes[at++] = four >> shift;
  }
  return bytes;
}
