// The handler and the loop of the producer, the same for every system on Node. See referee.py: it writes the same files.
const fs = require("fs");
const path = require("path");
const zlib = require("zlib");

const PUBLISHERS = 8;
const SLOTS = Number(process.env.REFEREE_SLOTS || 16);
const LEASE_MS = Number(process.env.REFEREE_LEASE_S || 15) * 1000;
const URL = process.env.REFEREE_URL;
// How often a message that fails is tried, and the wait between two tries.
const ATTEMPTS = 3;
const RETRY_AFTER_MS = 200;

let file;
function write(kind, key, number) {
  file ??= fs.openSync(path.join(process.env.REFEREE_EVENTS, String(process.pid)), "a");
  fs.writeSync(file, `${kind} ${key} ${number} ${process.hrtime.bigint()}\n`);
}

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

async function handle({ key, number, work_ms, fails }) {
  write("B", key, number);
  if (work_ms) await sleep(work_ms);
  write(fails ? "F" : "E", key, number);
  if (fails) throw new Error(`planned failure of ${key} ${number}`);
}

// As in referee.py, so that a key shares its queue with the same others.
const hash = (text) => zlib.crc32(text);

// Each of the publishers sends the messages of its keys one after the other, each once the one before is acknowledged.
// The clock starts when each has a connection: each sends a message first that the judge leaves out.
async function produce(publish) {
  const parts = Array.from({ length: PUBLISHERS }, () => []);
  for (const line of fs.readFileSync(process.env.REFEREE_PLAN, "utf8").split("\n")) {
    if (!line) continue;
    const [at_ms, key, number, work_ms, fails] = line.split(" ");
    const message = { key, number: Number(number), work_ms: Number(work_ms), fails: Number(fails) };
    parts[hash(key) % PUBLISHERS].push([Number(at_ms), message]);
  }
  await Promise.all(parts.map((_, each) => publish({ key: `warm-publisher${each}`, number: 0, work_ms: 0, fails: 0 })));
  const start = Date.now();
  await Promise.all(
    parts.map(async (part, publisher) => {
      const sent = fs.openSync(path.join(process.env.REFEREE_SENT, String(publisher)), "a");
      for (const [at_ms, message] of part) {
        const wait = start + at_ms - Date.now();
        if (wait > 0) await sleep(wait);
        const began = process.hrtime.bigint();
        await publish(message);
        fs.writeSync(sent, `${message.key} ${message.number} ${began} ${process.hrtime.bigint()}\n`);
      }
    }),
  );
}

module.exports = { ATTEMPTS, LEASE_MS, RETRY_AFTER_MS, SLOTS, URL, handle, hash, produce };
