// `stalledInterval` is as short as the lease, so that it does not add to it much. With the default
// `maxStalledCount` of 1, what a dead worker ran counts as failed and does not run again.
const { Worker } = require("groupmq");
const { LEASE_MS, RETRY_AFTER_MS, SLOTS, handle } = require(process.env.REFEREE_CLIENT);
const queue = require("./queue.cjs");

const worker = new Worker({
  queue,
  concurrency: SLOTS,
  heartbeatMs: LEASE_MS / 3,
  stalledInterval: LEASE_MS / 3,
  stalledGracePeriod: 0,
  maxStalledCount: 5,
  backoff: () => RETRY_AFTER_MS,
  handler: (job) => handle(job.data),
});
worker.run();
