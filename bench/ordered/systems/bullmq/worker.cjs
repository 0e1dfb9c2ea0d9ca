// Every worker reads every queue; a global concurrency of 1 (docs.bullmq.io/guide/queues/global-concurrency) lets one job of a
// queue run at a time. The lock is renewed while the job runs, and a job whose lock expired is stalled and runs again.
const { Queue, Worker } = require("bullmq");
const { LEASE_MS, handle } = require(process.env.REFEREE_CLIENT);
const { connection, names } = require("./queues.cjs");

async function main() {
  for (const name of names) {
    await new Queue(name, { connection }).setGlobalConcurrency(1);
    const worker = new Worker(name, (job) => handle(job.data), {
      connection,
      concurrency: 1,
      lockDuration: LEASE_MS,
      stalledInterval: LEASE_MS,
      removeOnComplete: { count: 0 },
    });
    worker.on("error", (error) => console.error(error.message));
  }
}

main();
