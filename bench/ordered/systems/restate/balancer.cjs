// Spreads the connections of Restate over the workers that accept them: node balancer.cjs PORT WORKER…
// Bytes only, so that Restate's keep-alive pings reach the worker.
const net = require("net");

const [port, ...workers] = process.argv.slice(2).map(Number);
let turn = 0;

function forward(client, tries) {
  const worker = net.connect(workers[turn++ % workers.length], "127.0.0.1");
  worker.setNoDelay();
  worker.once("connect", () => {
    worker.on("error", () => client.destroy());
    client.pipe(worker).pipe(client);
  });
  worker.once("error", () => (worker.bytesWritten || tries === 1 ? client.destroy() : forward(client, tries - 1)));
  worker.once("close", () => worker.bytesWritten && client.destroy());
  client.once("close", () => worker.destroy());
}

const server = net.createServer({ noDelay: true }, (client) => {
  client.on("error", () => client.destroy());
  forward(client, workers.length);
});
server.listen(port, "127.0.0.1");
