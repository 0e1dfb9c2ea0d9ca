// A virtual object for each key (https://docs.restate.dev/foundations/services#virtual-object). The message is a step of its
// journal (`ctx.run`), tried three times.
const restate = require("@restatedev/restate-sdk");
const { ATTEMPTS, RETRY_AFTER_MS, URL: urls, handle } = require(process.env.REFEREE_CLIENT);

const [ingress, admin, address, ...ports] = urls.split(" ");
const retries = { maxRetryAttempts: ATTEMPTS, initialRetryInterval: RETRY_AFTER_MS, retryIntervalFactor: 1 };
const referee = restate.object({
  name: "referee",
  handlers: { handle: (ctx, message) => ctx.run("handle", () => handle(message), retries) },
});

module.exports = { ingress, admin, address, serve: (number) => restate.serve({ services: [referee], port: Number(ports[number]) }) };
