// Prints how many spins take one millisecond of processor time on this machine.
process.env.BENCH_DONE ??= "/dev/null";
const { spin } = require("./handlers.cjs");

const SPINS = 200_000_000;
spin(SPINS / 10);  // warms up the JIT compiler
const before = process.cpuUsage();
spin(SPINS);
const used = process.cpuUsage(before);
console.log(Math.round((SPINS / (used.user + used.system)) * 1000));
