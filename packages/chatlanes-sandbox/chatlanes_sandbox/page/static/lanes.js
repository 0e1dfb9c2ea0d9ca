// The lanes as they are now. Rows keep their places while they fill and empty, so nothing jumps under a flood.

import { api } from "./api.js";
import { byId, h, icon, renew, setText } from "./dom.js";
import { beforePaint, whileSeen } from "./frames.js";
import { chart } from "./chart.js";
import { count, span } from "./times.js";
import { asking, on, world } from "./world.js";

const FLOOD = 500;
/** The server shows the page's own chats and ten others. */
const OTHER_ROWS = 10;

/** Each names what it counts. */
const proof = {
  lost: figure("lost", "updates lost"),
  out_of_order: figure("out_of_order", "updates out of order"),
  repeated: figure("repeated", "messages repeated"),
};
const verdict = h("p.verdict", { role: "status" });
const counts = {
  waiting: figure("waiting"),
  handed_out: figure("handed_out", "handed out"),
  running: figure("running"),
  delayed: figure("delayed"),
  buried: figure("buried"),
  settled: figure("settled"),
};
counts.handed_out.node.title = "A worker has them and starts them next";
const stream = h("p.note", { hidden: true });
const uncertainNote = h("p.note", { hidden: true });
const ORDER = "oldest first, one runs at a time";
const legend = h("span.legend", { role: "status" }, ORDER);
const rate = h("span.rate");
const broadcasts = h("ul.broadcasts");
const broadcastsPart = h("section", { "aria-labelledby": "h-broadcasts", hidden: true }, h("h3", { id: "h-broadcasts" }, "Broadcasts"), broadcasts);
const workers = h("ul.workers");
const rows = h("ol.rows");
const flood = h("button.primary", { type: "button", onclick: () => act(flood, () => api.flood(FLOOD)) }, icon("bolt"), `Flood ${FLOOD}`);
const kill = h("button.danger", { type: "button", onclick: () => act(kill, () => api.kill(null)) }, icon("skull"), "Kill a worker");
const slow = h("input", { type: "checkbox", role: "switch", onchange: () => act(slow, () => api.slow(slow.checked)) });
const slowSwitch = h("label.switch", { title: "Each call of a handler takes 3 s" }, slow, "Slow handlers, so that a kill hits one that runs");
let slots = [];

byId("panel-lanes").append(
  h("h2.sr", {}, "Lanes"),
  h("section.proof", { "aria-label": "Proof" }, h("div.figures", {}, Object.values(proof).map((one) => one.node)), uncertainNote, verdict,
    h("div.actions", {}, flood, kill), slowSwitch),
  h("section", { "aria-labelledby": "h-backlog" }, h("h3", { id: "h-backlog" }, "Backlog", rate), chart.node,
    h("div.figures.small", {}, Object.values(counts).map((one) => one.node)), stream),
  broadcastsPart,
  h("section", { "aria-labelledby": "h-workers" }, h("h3", { id: "h-workers" }, "Workers"), workers),
  h("section", { "aria-labelledby": "h-lanes" }, h("h3", { id: "h-lanes" }, "Lanes", legend), rows),
);

function figure(name, label = name) {
  const value = h("b", {}, "–");
  return { value, node: h("div.figure", { dataset: { name } }, value, h("span", {}, label)) };
}

async function act(button, ask) {
  button.disabled = true;
  await asking(ask);
  button.disabled = false;
}

function draw() {
  const { lanes } = world;
  if (!lanes) return;
  for (const [name, { value, node }] of Object.entries(proof)) {
    setText(value, count(lanes[name]));
    node.classList.toggle("bad", lanes[name] > 0);
  }
  const holds = lanes.lost + lanes.out_of_order + lanes.repeated === 0;
  verdict.classList.toggle("bad", !holds);
  setText(verdict, holds ? killed(lanes.killed) : "This must not happen. Please report what you did.");
  uncertainNote.hidden = !lanes.uncertain;
  setText(uncertainNote, uncertain(lanes.uncertain));
  stream.hidden = !lanes.stream;
  setText(stream, lanes.stream ? streamed(lanes.stream) : "");
  for (const [name, { value, node }] of Object.entries(counts)) {
    setText(value, count(lanes.counts[name]));
    node.classList.toggle("some", lanes.counts[name] > 0);
  }
  setText(rate, `${lanes.rate_s.toFixed(lanes.rate_s < 10 ? 1 : 0)} settled/s`);
  slow.checked = lanes.slow;
  kill.disabled = !lanes.workers.some((worker) => worker.alive);
  drawBroadcasts(lanes.broadcasts);
  drawWorkers(lanes.workers);
  drawRows(lanes.rows);
}

const killed = (n) => (n === 0 ? "No worker was killed yet." : `while ${count(n)} ${n === 1 ? "worker was" : "workers were"} killed`);

/** A process died between Telegram's answer and its record of it: the outcome of the call is unknown. */
function uncertain(n) {
  if (!n) return "";
  return `${n === 1 ? "1 more message was" : `${count(n)} more messages were`} sent again because a kill interrupted the call (UNCERTAIN_CALL)`;
}

const streamed = ({ rate: perS, chats }) =>
  `All counts include the background stream: ${perS} updates/s in ${chats} simulated chats (--no-stream turns it off).`;

function drawBroadcasts(all) {
  broadcastsPart.hidden = all.length === 0;
  renew(broadcasts, JSON.stringify(all.map(({ id }) => id)), () => all.map(broadcastRow));
  all.forEach(({ state, why, total, done, results, rate_s: rate, elsewhere }, index) => {
    const [bar, text, pause, about] = broadcasts.children[index].querySelectorAll("progress, .broadcast-state, button, .broadcast-results");
    bar.max = total;
    bar.value = done;
    setText(text, `${state}: ${count(done)} of ${count(total)}${state === "running" ? `, ${rate.toFixed(0)}/s` : ""}`);
    pause.hidden = !["running", "paused"].includes(state);
    setText(pause, state === "paused" ? "Resume" : "Pause");
    const parts = Object.entries(results).map(([reason, n]) => `${count(n)} ${reason}`);
    if (elsewhere) parts.push(`${count(elsewhere)} of the messages to chats that are not on this page`);
    setText(about, [...parts, why && state === "paused" ? why : ""].filter(Boolean).join(" · "));
  });
}

function broadcastRow({ id }) {
  const isPaused = () => world.lanes.broadcasts.find((one) => one.id === id)?.state === "paused";
  const pause = h("button.quiet.small", { type: "button", onclick: () => act(pause, () => api.pauseBroadcast(id, !isPaused())) });
  return h("li", {}, h("b", {}, id), h("progress", { "aria-label": `Broadcast ${id}` }), h("span.broadcast-state"), pause, h("p.broadcast-results"));
}

function drawWorkers(all) {
  renew(workers, JSON.stringify(all.map(({ name, pid }) => [name, pid])), () => all.map(workerRow));
  all.forEach((worker, index) => {
    const [state, button] = workers.children[index].querySelectorAll(".worker-state, button");
    const has = [worker.running && `runs ${worker.running}`, worker.handed_out && `${worker.handed_out} handed out`];
    const busy = has.filter(Boolean).join(", ") || "idle";
    setText(state, worker.killed ? "killed" : worker.alive ? busy : "starting");
    workers.children[index].dataset.state = worker.killed ? "killed" : worker.alive ? (worker.running ? "busy" : "idle") : "starting";
    button.disabled = !worker.alive;
  });
}

function workerRow({ name, pid }) {
  const button = h("button.danger.small", { type: "button", "aria-label": `kill -9 ${name}`, onclick: () => act(button, () => api.kill(name)) }, "kill -9");
  return h("li", {}, h("i.dot"), h("b", {}, shortName(name)), h("code", {}, pid ? `pid ${pid}` : ""), h("span.worker-state"), button);
}

const shortName = (name) => name.replace(/@.*/, "");

const isOwn = (lane) => world.chats.has(lane.chat_id);

/** A lane that is still shown keeps its row; a new one takes a row that became free. */
function placed(lanes) {
  const own = lanes.filter(isOwn);
  const others = new Map(lanes.filter((lane) => !isOwn(lane)).map((lane) => [lane.title, lane]));
  slots = slots.slice(0, OTHER_ROWS).map((title) => (others.has(title) ? title : null));
  for (const title of others.keys()) {
    if (slots.includes(title)) continue;
    const free = slots.indexOf(null);
    if (free < 0) slots.push(title);
    else slots[free] = title;
  }
  return [...own, ...slots.map((title) => others.get(title) ?? null)];
}

function drawRows(lanes) {
  const all = placed(lanes);
  while (rows.children.length < all.length) rows.append(emptyRow());
  while (rows.children.length > all.length) rows.lastChild.remove();
  all.forEach((lane, index) => drawRow(rows.children[index], lane));
  drawLegend();
}

function emptyRow() {
  const row = h("li");
  row.parts = { title: h("span.lane-title"), head: h("span.head"), queue: h("span.queue"), more: h("span.more"), end: h("span.end") };
  row.append(row.parts.title, h("span.track", {}, row.parts.head, row.parts.queue, row.parts.more), row.parts.end);
  return row;
}

function drawRow(row, lane) {
  const { title, head, queue, more, end } = row.parts;
  row.lane = lane;
  row.classList.toggle("free", !lane);
  row.classList.toggle("own", Boolean(lane && isOwn(lane)));
  setText(title, lane?.title ?? "");
  const state = !lane ? "" : lane.running ? held(lane.running) : lane.delayed ? "delayed" : "";
  head.dataset.state = state;
  drawHead(row);
  queue.style.setProperty("--n", lane ? Math.min(lane.waiting, 400) : 0);
  setText(more, lane?.waiting ? count(lane.waiting) : "");
  renew(end, lane?.buried ?? 0, () => (lane?.buried ? [icon("buried"), String(lane.buried)] : []));
  row.setAttribute("aria-label", lane ? spoken(lane) : "free");
}

const held = ({ gone, started }) => (gone ? "gone" : started ? "running" : "handed");

const until = (atS) => Math.max(0, Math.ceil(atS - Date.now() / 1000));

function drawHead(row) {
  const { lane, parts } = row;
  if (lane?.running) {
    const { worker, since_s: since, attempt, gone, started, lease_ends_s: ends } = lane.running;
    const seconds = Math.max(0, Date.now() / 1000 - since).toFixed(1);
    const again = attempt > 1 ? ` · try ${attempt}` : "";
    if (gone) setText(parts.head, `† ${shortName(worker)}${ends ? ` ${until(ends)} s` : ""}`);
    else setText(parts.head, started ? `${shortName(worker)} ${seconds} s${again}` : `${shortName(worker)} next`);
  } else {
    setText(parts.head, lane?.delayed ? "retries soon" : "");
  }
}

function spoken({ title, running, waiting, delayed, buried }) {
  const gone = running?.gone ? `was running on ${running.worker}, which was killed; others take over when its lease ends` : "";
  const where = gone || `${running?.started ? "runs on" : "was handed to"} ${running?.worker}`;
  const now = running ? `update ${running.update_id} ${where}` : delayed ? "the first one waits for a retry" : "nothing runs";
  return `${title}: ${now}, ${waiting} waiting, ${buried} buried`;
}

/** Explains the † while there is one; it replaces another text, so that no row moves. */
function drawLegend() {
  const ends = [...rows.children].filter((row) => row.lane?.running?.gone).map((row) => row.lane.running.lease_ends_s);
  const seconds = Math.max(0, ...ends.map((atS) => (atS ? until(atS) : 0)));
  legend.classList.toggle("bad", ends.length > 0);
  setText(legend, ends.length ? `† worker killed; others take over ${seconds ? `in ${seconds} s` : "now"}` : ORDER);
}

on("lanes", () => {
  chart.add(world.lanes);
  beforePaint("lanes", draw);
});
whileSeen(200, () => {
  [...rows.children].filter((row) => row.lane?.running).forEach(drawHead);
  drawLegend();
});
