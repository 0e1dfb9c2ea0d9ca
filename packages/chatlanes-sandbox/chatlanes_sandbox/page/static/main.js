// The page: a simulated Telegram for one bot. Connects the modules.

import { api } from "./api.js";
import { columnOf, open } from "./columns.js";
import { connect } from "./connection.js";
import { byId, setText } from "./dom.js";
import { linkChanged } from "./problems.js";
import { show } from "./side.js";
import { asking, handle, on, world } from "./world.js";
import "./lanes.js";
import "./newchat.js";
import "./notices.js";
import "./update.js";

function composerOf(chat) {
  show("chats");
  open(chat.info.id);
  return columnOf(chat.info.id).composer;
}

on("snapshot", () => {
  const { first_name: name, username, path } = world.bot;
  byId("bot").replaceChildren(name, document.createElement("code"));
  setText(byId("bot").lastChild, path);
  byId("restart").hidden = !path; // a simulator that was started alone does not run the bot
  byId("bot").title = `@${username}`;
  document.title = `${name} · chatlanes sandbox`;
});
on("reply", (chat, message) => composerOf(chat).reply(message));
on("edit", (chat, message) => composerOf(chat).edit(message));
on("command", (chatId, text) => columnOf(chatId)?.composer.post(text));
on("press", (chat, message, data, withPointer) => {
  const { composer } = columnOf(chat.info.id);
  asking(() => api.press(chat.info.id, composer.writerId, message.message_id, data));
  if (withPointer) composer.refocus(); // the keyboard's user stays on the button
});
on("stop", (chat, draft) => {
  asking(() => api.stop(chat.info.id, draft.message_thread_id));
  columnOf(chat.info.id).composer.refocus();
});
on("writer", (chat) => columnOf(chat.info.id)?.shown());
on("clear", async (chat) => {
  if (await asking(() => api.clear(chat.info.id))) {
    chat.emptied(chat.info);
    columnOf(chat.info.id)?.shown();
    columnOf(chat.info.id)?.composer.refocus();
  }
});

connect(handle, (isUp) => {
  const link = byId("link");
  link.dataset.state = isUp ? "up" : "lost";
  setText(link, isUp ? "Connected" : "Connecting …");
  linkChanged(isUp);
});
