// Publishes the plan; `add` returns when Redis has the job on disk.
const { Queue } = require("bullmq");
const { produce } = require(process.env.REFEREE_CLIENT);
const { connection, names, nameOf } = require("./queues.cjs");

const defaultJobOptions = { removeOnComplete: true };
const queues = Object.fromEntries(names.map((name) => [name, new Queue(name, { connection, defaultJobOptions })]));

produce((message) => queues[nameOf(message.key)].add("message", message)).then(() => process.exit(0));
