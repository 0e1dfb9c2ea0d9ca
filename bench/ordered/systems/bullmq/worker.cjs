// Every worker reads every queue; a global concurrency of 1 (docs.bullmq.io/guide/queues/global-concurrency) lets one job of a
// queue run at a time. The lock is renewed while the job runs, and a job whose lock expired is stalled and runs again: one
// check of `stalledInterval` marks it, and a later one moves it. More stalls than `maxStalledCount`, by default 1, are a failure.
//
// A job that fails is moved back to the head of its queue (docs.bullmq.io/patterns/manual-retrying): with `attempts` and
// `backoff`, later ones would pass it.
const { Queue, WaitingError, Worker } = require("bullmq");
const { ATTEMPTS, LEASE_MS, RETRY_AFTER_MS, handle } = require(process.env.REFEREE_CLIENT);
const { connection, names } = require("./queues.cjs");

async function run(job, token) {
  try {
    await handle(job.data);
  } catch (error) {
    if (job.attemptsStarted >= ATTEMPTS) throw error;
    await new Promise((resolve) => setTimeout(resolve, RETRY_AFTER_MS));
    await job.moveToWait(token);
    throw new WaitingError();
  }
}

async function main() {
  for (const name of names) {
    await new Queue(name, { connection }).setGlobalConcurrency(1);
    const worker = new Worker(name, run, {
      connection,
      concurrency: 1,
      lockDuration: LEASE_MS,
      stalledInterval: LEASE_MS / 3,
      maxStalledCount: 5,
      removeOnComplete: { count: 0 },
    });
    worker.on("error", (error) => console.error(error.message));
  }
}

main();
