// As many queues as the workers have slots together; a key always has the same one.
const { URL: url, hash, SLOTS } = require(process.env.REFEREE_CLIENT);

const { port } = new URL(url);
// Without a limit of retries, as docs.bullmq.io/guide/going-to-production asks for.
const connection = { host: "127.0.0.1", port: Number(port), maxRetriesPerRequest: null };
const names = Array.from({ length: 2 * SLOTS }, (_, number) => `queue-${number}`);

module.exports = { connection, names, nameOf: (key) => names[hash(key) % names.length] };
