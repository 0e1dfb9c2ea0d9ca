// The message box and its surroundings. Text that the server refuses is put back into the box.

import { api } from "./api.js";
import { Attachment } from "./attachment.js";
import { h, hueOf, icon, renew } from "./dom.js";
import { asking, tell } from "./world.js";

/** Without it, a script sets the height of the field. */
const GROWS = CSS.supports("field-sizing", "content");

let groups = 0;

export class Composer {
  constructor(chat) {
    this.chat = chat;
    this.writerId = chat.info.users[0]?.id;
    this.replyTo = null;
    this.editing = null;
    this.about = h("div.about", { hidden: true });
    this.keyboard = h("div.keyboard", { role: "group", "aria-label": "Reply keyboard" });
    this.writers = h("fieldset.writers", { hidden: true });
    this.commands = h("div.commands", { role: "group", "aria-label": "Commands", hidden: true });
    this.attachment = new Attachment();
    this.text = h("textarea", { rows: 1, placeholder: "Message", maxLength: 4096, dir: "auto" });
    this.text.setAttribute("aria-label", `Message to ${chat.info.title}`);
    this.send = h("button.send", { "aria-label": "Send", title: "Send (Enter)" }, icon("send"));
    this.node = h("form.composer", { onsubmit: (event) => this.submit(event) });
    const row = h("div.row", {}, this.attachment.button, this.text, this.send);
    this.node.append(this.writers, this.about, this.attachment.preview, this.commands, row, this.keyboard);
    this.text.addEventListener("input", () => this.typed());
    this.text.addEventListener("keydown", (event) => this.key(event));
    this.text.addEventListener("paste", (event) => this.attachment.take(event.clipboardData.files, event));
  }

  draw() {
    const { users, type } = this.chat.info;
    this.writers.hidden = type === "private";
    renew(this.writers, JSON.stringify(users), () => this.writerChoice(users));
    renew(this.keyboard, JSON.stringify(this.chat.keyboard), () => this.chat.keyboard.map((row) => this.keyRow(row)));
  }

  writerChoice(users) {
    const name = `writer-${(groups += 1)}`;
    const choose = (user) =>
      h("label", { dataset: { hue: hueOf(user.id) } },
        h("input", { type: "radio", name, value: user.id, checked: user.id === this.writerId, onchange: () => this.writeAs(user), onclick: (event) => event.detail && this.refocus() }),
        h("span", {}, user.first_name));
    return [h("legend", {}, "Write as"), ...users.map(choose)];
  }

  /** Each person sees other ephemeral messages. */
  writeAs(user) {
    this.writerId = user.id;
    tell("writer", this.chat);
  }

  keyRow(row) {
    return h("div", {}, row.map((text) => h("button.key", { type: "button", onclick: () => this.post(text) }, text)));
  }

  acceptDrops(zone) {
    const over = (on) => (event) => {
      if (![...event.dataTransfer.types].includes("Files")) return;
      event.preventDefault();
      zone.classList.toggle("dropping", on);
    };
    zone.addEventListener("dragover", over(true));
    zone.addEventListener("dragleave", over(false));
    zone.addEventListener("drop", (event) => {
      over(false)(event);
      this.attachment.take(event.dataTransfer.files, event);
      this.text.focus();
    });
  }

  /** Focuses the message box, except on a phone, where that opens the keyboard. */
  refocus() {
    if (matchMedia("(hover: hover)").matches) this.text.focus();
  }

  reply(message) {
    this.stopEditing();
    this.replyTo = message;
    this.tellAbout(`Reply to ${message.user.first_name}`, message.text || message.kind);
    this.text.focus();
  }

  edit(message) {
    this.replyTo = null;
    this.editing = message;
    this.tellAbout("Edit message", message.text);
    this.text.value = message.text;
    this.typed();
    this.text.focus();
  }

  stopEditing() {
    if (this.editing) this.setText("");
    this.replyTo = null;
    this.editing = null;
    this.about.hidden = true;
  }

  cancel() {
    this.stopEditing();
    this.refocus();
  }

  tellAbout(title, text) {
    const cancel = h("button.quiet.square", { type: "button", "aria-label": "Cancel", onclick: () => this.cancel() }, icon("close"));
    this.about.replaceChildren(h("div", {}, h("b", {}, title), h("span", {}, text)), cancel);
    this.about.hidden = false;
  }

  setText(text) {
    this.text.value = text;
    this.typed();
  }

  typed() {
    const text = this.text.value;
    if (!GROWS) {
      this.text.style.height = "auto";
      this.text.style.height = `${this.text.scrollHeight}px`;
    }
    const match = /^\/\w*$/.test(text) ? knownCommands(this.chat).filter((one) => one.startsWith(text) && one !== text) : [];
    this.commands.hidden = match.length === 0;
    renew(this.commands, match.join(), () => match.map((one) => h("button", { type: "button", onclick: () => this.post(one) }, one)));
  }

  key(event) {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      this.node.requestSubmit();
    } else if (event.key === "Escape") {
      this.stopEditing();
    } else if (event.key === "Tab" && !event.shiftKey && !this.commands.hidden) {
      event.preventDefault();
      this.setText(this.commands.firstChild.textContent);
    } else if (event.key === "ArrowUp" && !this.text.value && !this.editing) {
      const last = this.chat.lastOwn(this.writerId);
      if (!last) return;
      event.preventDefault();
      this.edit(last);
    }
  }

  submit(event) {
    event.preventDefault();
    const text = this.text.value.trim();
    if (this.editing) this.change(text);
    else if (this.attachment.files.length) this.postPhotos(text);
    else if (text) this.post(text, true);
  }

  async post(text, typed = false) {
    const reply = this.replyTo;
    this.stopEditing();
    if (typed || this.text.value.startsWith("/")) this.setText("");
    tell("wrote", this.chat);
    this.refocus();
    await this.tried(() => api.send(this.chat.info.id, this.writerId, text, reply?.message_id), text);
  }

  async postPhotos(caption) {
    const { files } = this.attachment;
    this.attachment.clear();
    this.setText("");
    tell("wrote", this.chat);
    this.refocus();
    await this.tried(() => api.photos(this.chat.info.id, this.writerId, caption, files), caption);
  }

  async change(text) {
    const { message_id: id, user } = this.editing;
    if (!text) return;
    this.stopEditing();
    this.refocus();
    await this.tried(() => api.edit(this.chat.info.id, user.id, id, text), text);
  }

  async tried(act, text) {
    if (!(await asking(act)) && !this.text.value) this.setText(text);
  }
}

/** /start, and the commands in the messages of the chat. */
function knownCommands(chat) {
  const known = new Set(["/start"]);
  for (const id of chat.ids) {
    for (const [, command] of chat.messages.get(id).text?.matchAll(/(?:^|\s)(\/[a-z0-9_]{1,32})\b/gi) ?? []) known.add(command);
  }
  return [...known].slice(0, 12);
}
