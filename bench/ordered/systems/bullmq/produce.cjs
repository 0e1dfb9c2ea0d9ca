// Publishes the plan; `add` returns when Redis has the job on disk.
const { Queue } = require("bullmq");
const { ATTEMPTS, RETRY_AFTER_MS, produce } = require(process.env.REFEREE_CLIENT);
const { connection, names, nameOf } = require("./queues.cjs");

const defaultJobOptions = { attempts: ATTEMPTS, backoff: { type: "fixed", delay: RETRY_AFTER_MS }, removeOnComplete: true };
const queues = Object.fromEntries(names.map((name) => [name, new Queue(name, { connection, defaultJobOptions })]));

produce((message) => queues[nameOf(message.key)].add("message", message)).then(() => process.exit(0));
