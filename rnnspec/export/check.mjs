
/** The largest error of every output, beside what is allowed, of steps one by one and of a block. */
export function check(weights = null) {
  const cell = new Cell(weights, { steps: STEPS });
  const names = Object.keys(OUTPUTS);
  const found = [];
  for (const way of ["step", "block"]) {
    const got = Object.fromEntries(names.map((name) => [name, []]));
    const take = (out) => names.forEach((name) => got[name].push(...(names.length === 1 ? out : out[name])));
    cell.reset();
    if (way === "block") take(cell.block(...INPUTS));
    for (let n = 0; way === "step" && n < STEPS; n++)
      take(cell.step(...INPUTS.map((a) => a.slice((n * a.length) / STEPS, ((n + 1) * a.length) / STEPS))));
    for (const name of names) {
      const { right, allowed } = OUTPUTS[name];
      const gaps = right.map((value, i) => Math.abs(got[name][i] - value));
      const error = gaps.every((gap) => gap <= allowed) ? Math.max(0, ...gaps) : gaps.find((gap) => !(gap <= allowed));
      found.push({ name: `${name}, by ${way}`, error, allowed, right: error <= allowed });
    }
  }
  return found;
}

if (typeof process === "object" && process.argv[1]?.endsWith(`${NAME}_selftest.mjs`)) {
  const { readFile } = await import("node:fs/promises");
  const weights = APART ? await readFile(process.argv[2] ?? new URL(`${NAME}.weights`, import.meta.url)) : null;
  for (const { name, error, allowed, right } of check(weights)) {
    console.log(`${name}: largest error ${error.toPrecision(2)}, ${allowed.toPrecision(2)} allowed`);
    if (!right) process.exitCode = 1;
  }
}
