// Short notices: answers of callbacks, refusals of the server, and new messages for screen readers.

import { columnOf } from "./columns.js";
import { byId, h } from "./dom.js";
import { beforePaint } from "./frames.js";
import { on, world } from "./world.js";

const TOAST_MS = 4500;
const MOST_TOASTS = 3;

const toasts = byId("toasts");
const dialog = byId("alert");
const alerts = []; // {text, chatId}
let answered = null;
let heard = 0;
let lastWords = "";

function toast(text, kind = "", place = toasts) {
  const node = h("p.toast", { dataset: { kind } }, text);
  place.append(node);
  if (place.children.length > MOST_TOASTS) place.firstChild.remove();
  setTimeout(() => node.remove(), TOAST_MS);
}

function nextAlert() {
  if (dialog.open || !alerts.length) return;
  const { text, chatId } = alerts.shift();
  byId("alert-text").textContent = text;
  answered = chatId;
  dialog.showModal();
}

/** During a flood only the number of messages is announced. */
function announce() {
  byId("announcer").textContent = heard > 1 ? `${heard} new messages` : lastWords;
  heard = 0;
}

dialog.addEventListener("close", () => {
  columnOf(answered)?.composer.refocus();
  nextAlert();
});
on("notice", ({ text, alert, chat_id: chatId }) => {
  if (!text) return;
  const column = columnOf(chatId);
  if (!alert && column?.node.isConnected) return toast(text, "", column.toasts);
  if (!alert) return toast(`${world.chats.get(chatId)?.info.title ?? "The bot"}: ${text}`);
  alerts.push({ text, chatId });
  if (alerts.length > 5) alerts.shift();
  return nextAlert();
});
on("refused", (error) => toast(error.message, "bad"));
on("told", (text) => toast(text));
on("message", (chat, message, isNew) => {
  if (!isNew || !message.user.is_bot) return;
  heard += 1;
  lastWords = `${chat.info.title}, ${message.user.first_name}: ${message.text || message.kind}`;
  beforePaint("announcer", announce);
});
