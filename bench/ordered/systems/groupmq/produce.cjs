// Publishes the plan; `add` returns when Redis has the job on disk.
const { produce } = require(process.env.REFEREE_CLIENT);
const queue = require("./queue.cjs");

produce((message) => queue.add({ groupId: message.key, data: message })).then(() => process.exit(0));
