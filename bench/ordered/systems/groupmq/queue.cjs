// `jobTimeoutMs` is how long a reserved job stays with a worker that sends no heartbeat.
const Redis = require("ioredis");
const { Queue } = require("groupmq");
const { ATTEMPTS, LEASE_MS, URL: url } = require(process.env.REFEREE_CLIENT);

const redis = new Redis(url, { maxRetriesPerRequest: null });
module.exports = new Queue({ redis, namespace: "referee", jobTimeoutMs: LEASE_MS, maxAttempts: ATTEMPTS });
