// The handlers of the bench for grammY: one waits, one computes. Each writes one byte to a file when it has ended.
const fs = require("fs");

const done = fs.openSync(process.env.BENCH_DONE, "a");

async function wait() {
  await new Promise((resolve) => setTimeout(resolve, Number(process.env.BENCH_WAIT_MS)));
  fs.writeSync(done, ".");
}

// A fixed amount of work; spins.cjs determines the number of spins.
function spin(spins) {
  let x = 1;
  for (let i = 0; i < spins; i++) x = (Math.imul(x, 1664525) + 1013904223) | 0;
  return x;
}

async function compute() {
  spin(Number(process.env.BENCH_SPINS));
  fs.writeSync(done, ".");
}

module.exports = { wait, compute, spin };
