// One update in detail: its times, its calls, its error. Fetched again when its state changes.

import { api } from "./api.js";
import { byId, h, icon } from "./dom.js";
import { json } from "./json.js";
import { STATES } from "./message.js";
import { show } from "./side.js";
import { clockWithSeconds, span } from "./times.js";
import { traceback } from "./traceback.js";
import { asking, on, tell, world } from "./world.js";

const AGAIN_MS = 300;

const panel = byId("panel-update");
let chosen = null; // {chat, messageId, updateId, node}
let timer = null;
const opened = new Set(["raw"]);
/** The address of an update: `#update=7`. */
const LINK = /^#update=(\d+)$/;

function select(chat, message, node) {
  chosen?.node?.classList.remove("chosen");
  node?.classList.add("chosen");
  chosen = { chat, messageId: message?.message_id, updateId: message ? message.update_id : null, node };
  show("update");
  load();
}

/** Shows an update of a problem or a lane, whose message may not be loaded. */
function selectUpdate(updateId) {
  for (const chat of world.chats.values()) {
    for (const message of chat.messages.values()) if (message.update_id === updateId && !message.user.is_bot) return select(chat, message, null);
  }
  chosen?.node?.classList.remove("chosen");
  chosen = { chat: null, messageId: null, updateId, node: null };
  show("update");
  return load();
}

async function load() {
  clearTimeout(timer);
  timer = null;
  const asked = chosen;
  history.replaceState(null, "", asked.updateId === null ? location.pathname : `#update=${asked.updateId}`);
  if (asked.updateId === null) return draw(asked, null);
  try {
    const found = await api.update(asked.updateId);
    if (asked === chosen) draw(asked, found);
  } catch (error) {
    if (asked === chosen) panel.replaceChildren(h("p.empty", {}, error.message));
  }
}

function draw({ chat, messageId, updateId }, found) {
  const message = chat?.messages.get(messageId);
  const scrolled = panel.scrollTop;
  panel.replaceChildren(...[
    heading(message, updateId, found),
    actions(chat, message, updateId, found),
    message?.presses?.length && presses(chat, message),
    message?.update_ids?.length > 1 && earlier(message, updateId),
    found?.group.length > 1 && collected(found, updateId),
    found && times(found),
    found && timeline(found),
    found?.traceback && h("section", {}, h("h3", {}, "Traceback"), traceback(found.traceback)),
    found && calls(found),
    found && part("raw", "Raw update", json(found.update)),
    message && part("message", "Message", json(message)),
  ].filter(Boolean));
  panel.scrollTop = scrolled;
}

function heading(message, updateId, found) {
  if (!found) {
    return h("p.empty", {}, message?.user.is_bot ? "The bot wrote this without an update, or the update is not known." : "This message is not an update.");
  }
  const { state, attempt, worker } = found;
  const facts = [STATES[state] ?? state, attempt > 1 && `try ${attempt}`, worker && `on ${worker.replace(/@.*/, "")}`];
  return h("header.update-head", {},
    h("h2", {}, message?.user.is_bot ? "Answer to update " : "Update ", h("code", {}, String(updateId))),
    h("p.state", { dataset: { state: state ?? "" } }, state && STATES[state] ? icon(state) : null, facts.filter(Boolean).join(" · ")));
}

function actions(chat, message, updateId, found) {
  const isThere = message && !message.deleted;
  const button = (symbol, label, onclick, kind = "quiet") => h(`button.${kind}`, { type: "button", onclick }, icon(symbol), label);
  return h("div.actions", {},
    found?.state === "buried" && button("again", "Replay", () => replay(updateId), "primary"),
    isThere && button("reply", "Reply", () => tell("reply", chat, message)),
    isThere && !message.user.is_bot && message.text && button("edit", "Edit", () => tell("edit", chat, message)),
    found && button("copy", "Copy JSON", () => copy(JSON.stringify(found.update, null, 2), "The update was copied to the clipboard.")),
    found && button("copy", "Copy link", () => copy(location.href, "The address of this update was copied to the clipboard.")));
}

/** Each press of a button of this message is an update of its own. */
function presses(chat, message) {
  const nameOf = (id) => chat.info.users.find((user) => user.id === id)?.first_name ?? id;
  const labelOf = (data) => message.buttons?.flat().find((button) => button.data === data)?.text ?? data;
  const rows = message.presses.map(({ user_id: user, data, update_id: id, state }) =>
    h("li", {}, state && h(`span.mark.${state}`, {}, icon(state)), h("span", {}, `${nameOf(user)} pressed ${labelOf(data)}`),
      h("button.link", { type: "button", onclick: () => tell("select-update", id) }, `update ${id}`)));
  return h("section", {}, h("h3", {}, "Buttons pressed"), h("ul.presses", {}, rows.reverse()));
}

/** The bot received an edited message more than once. */
function earlier(message, updateId) {
  const others = message.update_ids.filter((id) => id !== updateId);
  const rows = others.map((id) => h("li", {}, h("span", {}, "before it was edited"),
    h("button.link", { type: "button", onclick: () => tell("select-update", id) }, `update ${id}`)));
  return h("section", {}, h("h3", {}, "Earlier updates"), h("ul.presses", {}, rows.reverse()));
}

async function replay(updateId) {
  await asking(() => api.replay(updateId));
  load();
}

async function copy(text, done) {
  await navigator.clipboard.writeText(text);
  tell("told", done);
}

/** The other updates of the same run. */
function collected({ group }, updateId) {
  const rows = group.map((id) => h("li", {}, id === updateId ? h("b", {}, `update ${id}`) : h("button.link", { type: "button", onclick: () => tell("select-update", id) }, `update ${id}`)));
  return h("section", {}, h("h3", {}, "Collected", h("span", {}, `one run for ${group.length} updates`)), h("ul.presses.collected-with", {}, rows));
}

/** Everything that happened to the update, in order. */
function timeline({ steps }) {
  const rows = steps.map(({ at_s: at, what, text }) =>
    h("li", { dataset: { what } }, h("span", {}, text), h("time", { title: clockWithSeconds(at) }, `+${span(Math.max(0, at - steps[0].at_s))}`)));
  return h("section", { "aria-labelledby": "h-timeline" }, h("h3", { id: "h-timeline" }, "Timeline"), h("ol.steps", {}, rows));
}

/** Telegram → lane → handler → settled, each part as wide as it was long. */
function times({ times, state, attempt }) {
  const { telegram_s: telegram, appended_s: appended, started_s: started, ended_s: ended } = times;
  const parts = [
    ["fetched", "Telegram → lane", telegram, appended],
    ["waited", "waited in its lane", appended ?? telegram, started],
    ["ran", attempt > 1 ? "ran, and waited between attempts" : "ran", started, ended],
  ].map(([name, label, from, to]) => ({ name, label, seconds: from && to ? Math.max(0, to - from) : null }));
  const bar = h("div.bar-of-times", { "aria-hidden": "true" });
  for (const { name, seconds } of parts) {
    if (seconds === null) continue;
    const piece = h(`i.${name}`);
    piece.style.flexGrow = Math.max(1, seconds * 1000);
    bar.append(piece);
  }
  const rows = parts.map(({ name, label, seconds }) => [h("dt", {}, h(`i.${name}`), label), h("dd", {}, span(seconds))]);
  return h("section.times", {}, h("h3", {}, "Times", h("span", {}, `sent ${clockWithSeconds(telegram)}${state === "running" ? ", runs now" : ""}`)), bar, h("dl", {}, rows));
}

function calls({ calls: made, times }) {
  const since = times.started_s ?? times.telegram_s;
  const list = made.map((call) => {
    const failed = call.status >= 400;
    const summary = h("summary", {}, h("code", {}, call.method), h("span", {}, `+${span(Math.max(0, call.at_s - since))}`), h(`b${failed ? ".bad" : ""}`, {}, String(call.status)));
    return h("li", {}, h("details", {}, summary, h("h4", {}, "Parameters"), json(call.params), h("h4", {}, "Answer"), json(call.answer)));
  });
  return h("section", {}, h("h3", {}, "Bot API calls", h("span", {}, String(made.length))), h("ul.calls", {}, list));
}

function part(name, title, content) {
  const node = h("details.part", { open: opened.has(name) }, h("summary", {}, title), content);
  node.addEventListener("toggle", () => (node.open ? opened.add(name) : opened.delete(name)));
  return h("section", {}, node);
}

panel.append(h("p.empty", {}, "Choose a message to see its update, how long it waited and ran, and the Bot API calls it made."));
function follow() {
  const id = Number(LINK.exec(location.hash)?.[1]);
  if (id && id !== chosen?.updateId) selectUpdate(id);
}

on("snapshot", follow);
addEventListener("hashchange", follow);
on("select", select);
on("select-update", selectUpdate);
on("message", (chat, message) => {
  const concerns = chosen && (message.update_id === chosen.updateId || (chat === chosen.chat && message.message_id === chosen.messageId));
  if (concerns && timer === null) timer = setTimeout(load, AGAIN_MS);
});
