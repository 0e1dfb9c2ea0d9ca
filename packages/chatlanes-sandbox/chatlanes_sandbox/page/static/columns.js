// The visible chats: as many columns as fit, those used last. The rail has all chats.

import { Column } from "./column.js";
import { avatar, byId, h, renew, setText } from "./dom.js";
import { beforePaint } from "./frames.js";
import { on, world } from "./world.js";

const NARROWEST_PX = 300;
const REMEMBERED = "chatlanes-open";

const place = byId("columns");
const rail = byId("rail");
const columns = new Map();
let recent = JSON.parse(sessionStorage.getItem(REMEMBERED) ?? "[]");
let seen = [];

export const columnOf = (chatId) => columns.get(chatId);

/** Shows the chat, and focuses its message box when `focus` is true. */
export function open(chatId, { focus = false } = {}) {
  recent = [chatId, ...recent.filter((id) => id !== chatId)].slice(0, 20);
  sessionStorage.setItem(REMEMBERED, JSON.stringify(recent));
  arrange();
  if (focus) columns.get(chatId)?.composer.text.focus();
}

function arrange() {
  const all = [...world.chats.keys()];
  const room = Math.max(1, Math.floor(place.clientWidth / NARROWEST_PX));
  const first = recent.filter((id) => world.chats.has(id));
  const wanted = new Set([...first, ...all.filter((id) => !first.includes(id))].slice(0, room));
  const next = all.filter((id) => wanted.has(id));
  if (next.join() !== seen.join() || place.children.length !== next.length) show(next);
  drawRail();
}

function show(next) {
  const before = new Set(seen);
  seen = next;
  for (const [id, column] of columns) {
    if (!world.chats.has(id)) columns.delete(id);
    if (!next.includes(id)) column.node.remove();
  }
  for (const id of next) {
    const chat = world.chats.get(id);
    if (!columns.has(id)) columns.set(id, new Column(chat));
    const column = columns.get(id);
    chat.unread = 0;
    if (column.node.parentNode === place && before.has(id)) continue;
    const later = next.slice(next.indexOf(id) + 1).find((one) => before.has(one));
    place.insertBefore(column.node, later ? columns.get(later).node : null);
    column.shown();
  }
  if (!next.length) place.replaceChildren(h("p.empty", {}, "No chats yet. Create one to write to the bot."));
  else place.querySelector(".empty")?.remove();
}

function drawRail() {
  const rows = [...world.chats.values()];
  renew(rail, JSON.stringify(rows.map((chat) => [chat.info.id, chat.info.title])), () => rows.map(railEntry));
  for (const [index, chat] of rows.entries()) {
    const button = rail.children[index].firstChild;
    const isSeen = seen.includes(chat.info.id);
    if (isSeen) chat.unread = 0;
    button.setAttribute("aria-current", String(isSeen));
    const badge = button.lastChild;
    badge.hidden = chat.unread === 0;
    setText(badge, chat.unread > 99 ? "99+" : String(chat.unread));
    badge.setAttribute("aria-label", `${chat.unread} unread`);
  }
}

function railEntry({ info }) {
  const onclick = () => open(info.id, { focus: matchMedia("(hover: hover)").matches });
  const badge = h("span.badge", { hidden: true, role: "img" });
  return h("li", {}, h("button", { type: "button", title: info.title, onclick }, avatar(info.id, info.title), h("span.name", {}, info.title), badge));
}

on("snapshot", () => {
  arrange();
  for (const column of columns.values()) column.shown();
});
on("chats", () => beforePaint("columns", arrange));
on("message", (chat, message, isNew) => {
  columns.get(chat.info.id)?.changed(message.message_id, isNew);
  if (isNew && !seen.includes(chat.info.id)) {
    chat.unread += 1;
    beforePaint("rail", drawRail);
  }
});
for (const what of ["action", "drafts"]) on(what, (chat) => {
  const column = columns.get(chat.info.id);
  column?.redraw();
  setTimeout(() => column?.redraw(), 5100);
});
on("wrote", (chat) => {
  columns.get(chat.info.id)?.toEnd();
  open(chat.info.id);
});
new ResizeObserver(() => beforePaint("columns", arrange)).observe(place);
