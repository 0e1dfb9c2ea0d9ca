// Publishes the plan; Restate answers a one-way call when its log has it on disk.
const { produce } = require(process.env.REFEREE_CLIENT);
const { ingress } = require("./service.cjs");

async function publish(message) {
  const answer = await fetch(`${ingress}/referee/${message.key}/handle/send`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(message),
  });
  if (!answer.ok) throw new Error(`${answer.status} ${await answer.text()}`);
  await answer.arrayBuffer();
}

produce(publish).then(() => process.exit(0));
