// The dialog that creates a chat: private with one person, or a group with several.

import { api } from "./api.js";
import { byId } from "./dom.js";
import { open } from "./columns.js";
import { show } from "./side.js";
import { handle } from "./world.js";

const dialog = byId("new-chat-dialog");
const form = byId("new-chat-form");
const fault = byId("new-chat-fault");

function kindChanged() {
  const group = form.elements.type.value !== "private";
  byId("group-title-field").hidden = !group;
  form.elements.title.required = group;
  byId("names-label").textContent = group ? "Members, separated by commas" : "Name";
  form.elements.users.placeholder = group ? "Ann, Ben" : "Ann";
}

async function create(event) {
  event.preventDefault();
  const type = form.elements.type.value;
  const users = form.elements.users.value.split(type === "private" ? "\n" : ",").map((name) => name.trim()).filter(Boolean);
  const title = type === "private" ? users[0] : form.elements.title.value.trim();
  try {
    const chat = await api.newChat(type, title, users);
    handle("chat", chat);
    dialog.close();
    form.reset();
    kindChanged();
    show("chats");
    open(chat.id, { focus: true });
  } catch (error) {
    fault.textContent = error.message;
  }
}

byId("new-chat").addEventListener("click", () => {
  fault.textContent = "";
  dialog.showModal();
  form.elements.users.focus();
});
byId("new-chat-cancel").addEventListener("click", () => dialog.close());
form.addEventListener("change", kindChanged);
form.addEventListener("submit", create);
