// One chat: its messages and its composer. Guarantees a bounded number of elements. Follows the newest message only
// while the reader is at the end.

import { avatar, h, icon, setText } from "./dom.js";
import { beforePaint } from "./frames.js";
import { Composer } from "./composer.js";
import { drawDrafts } from "./drafts.js";
import { MessageView } from "./message.js";
import { tell } from "./world.js";

/** Each element costs layout time; a button shows older messages. */
const MOST_SHOWN = 80;
const NEAR_THE_END_PX = 60;

export class Column {
  constructor(chat) {
    this.chat = chat;
    this.views = new Map();
    this.albums = new Map(); // media_group_id -> its grid
    this.limit = MOST_SHOWN;
    this.dirty = new Set(chat.ids);
    this.atEnd = true;
    this.missed = 0;
    this.subtitle = h("p.subtitle");
    this.title = h("h2");
    this.log = h("div.log", { role: "log", "aria-live": "off", tabIndex: 0 });
    this.earlier = h("button.earlier.quiet", { type: "button", hidden: true, onclick: () => this.showEarlier() }, "Earlier messages");
    this.start = h("div.start", { hidden: true }, h("p", {}, "No messages yet."),
      h("button.primary", { type: "button", onclick: () => this.composer.post("/start") }, "Send /start"));
    this.drafts = h("div.drafts");
    this.list = h("div.list", {}, this.start, this.earlier);
    this.jump = h("button.jump", { type: "button", hidden: true, onclick: () => this.toEnd() }, icon("down"), h("span"));
    this.toasts = h("div.toasts.here", { role: "status" });
    this.composer = new Composer(chat);
    this.node = h("section.column", { dataset: { chat: chat.info.id } });
    this.node.append(this.header(), h("div.scroll", {}, this.log, this.toasts, this.jump), this.composer.node);
    this.log.append(this.list, this.drafts);
    this.log.addEventListener("scroll", () => this.scrolled(), { passive: true });
    this.log.addEventListener("keydown", (event) => this.walk(event));
    new ResizeObserver(() => this.atEnd && this.redraw()).observe(this.log);
    this.composer.acceptDrops(this.node);
    this.redraw();
  }

  header() {
    const { id, title } = this.chat.info;
    const clear = h("button.quiet.square", { type: "button", title: "Delete these messages", onclick: () => tell("clear", this.chat) }, icon("broom"));
    clear.setAttribute("aria-label", `Delete the messages of ${title}`);
    return h("header.chat-bar", {}, avatar(id, title), h("div", {}, this.title, this.subtitle), clear);
  }

  changed(id, isNew) {
    this.dirty.add(id);
    if (isNew && !this.atEnd) this.missed += 1;
    this.redraw();
  }

  redraw() {
    beforePaint(this, () => this.draw());
  }

  draw() {
    if (!this.node.isConnected) return; // what is not shown is drawn when it is
    const { title } = this.chat.info;
    setText(this.title, title);
    this.node.setAttribute("aria-label", `Chat ${title}`);
    this.log.setAttribute("aria-label", `Messages of ${title}`);
    this.drawSubtitle();
    this.drawMessages();
    drawDrafts(this.drafts, this.chat, () => this.redraw());
    this.composer.draw();
    if (this.atEnd) this.log.scrollTop = this.log.scrollHeight;
    this.jump.hidden = this.atEnd;
    setText(this.jump.lastChild, this.missed ? String(this.missed) : "");
    this.jump.setAttribute("aria-label", this.missed ? `${this.missed} new messages` : "To the newest message");
  }

  drawSubtitle() {
    const { type, users } = this.chat.info;
    const typing = this.chat.typingUntil > Date.now();
    const people = type === "private" ? "private" : users.map((user) => user.first_name).join(", ");
    setText(this.subtitle, typing ? doing(this.chat.action) : people);
    this.subtitle.classList.toggle("typing", typing);
  }

  drawMessages() {
    const ids = this.chat.ids.slice(-this.limit);
    const first = ids[0] ?? 0;
    for (const [id, view] of this.views) {
      if (id >= first && this.chat.messages.has(id)) continue;
      view.node.remove();
      this.views.delete(id);
    }
    for (const [name, grid] of this.albums) {
      if (grid.children.length) continue;
      grid.remove();
      this.albums.delete(name);
    }
    const fresh = document.createDocumentFragment();
    let before = null;
    for (const id of ids) {
      const message = this.chat.messages.get(id);
      const view = this.views.get(id);
      if (!view) this.insert(id, new MessageView(this.chat, message, before), fresh);
      else if (this.dirty.has(id)) view.update(message);
      this.views.get(id).node.hidden = Boolean(message.seen_by) && message.seen_by.id !== this.composer.writerId;
      before = message;
    }
    this.list.append(fresh);
    this.dirty.clear();
    this.earlier.hidden = ids.length === this.chat.ids.length;
    this.start.hidden = ids.length > 0;
  }

  /** Nearly always appended; earlier messages are inserted in order. The parts of an album are in one grid. */
  insert(id, view, fresh) {
    this.views.set(id, view);
    const album = view.message.media_group_id;
    if (!album) return place(view.node, id, this.list, fresh);
    if (this.albums.has(album)) return place(view.node, id, this.albums.get(album));
    const grid = h(`div.album.${view.message.user.is_bot ? "in" : "out"}`, { dataset: { id } }, view.node);
    this.albums.set(album, grid);
    return place(grid, id, this.list, fresh);
  }

  showEarlier() {
    const height = this.log.scrollHeight;
    this.limit = Infinity;
    this.atEnd = false;
    this.draw();
    this.log.scrollTop += this.log.scrollHeight - height;
  }

  scrolled() {
    this.atEnd = this.log.scrollHeight - this.log.scrollTop - this.log.clientHeight < NEAR_THE_END_PX;
    if (!this.atEnd) return;
    this.missed = 0;
    if (this.limit !== MOST_SHOWN) this.limit = MOST_SHOWN;
    this.redraw();
  }

  /** Moves by keyboard from message to message: all of them are one stop for Tab. */
  walk(event) {
    const metas = [...this.list.querySelectorAll(".meta")];
    const now = metas.indexOf(document.activeElement);
    if (now < 0 && event.target !== this.log) return;
    const last = metas.length - 1;
    const next = { ArrowUp: now < 0 ? last : now - 1, ArrowDown: now < 0 ? last : now + 1, Home: 0, End: last }[event.key];
    if (!metas[next]) return;
    event.preventDefault();
    metas[next].focus();
  }

  toEnd() {
    this.atEnd = true;
    this.missed = 0;
    this.redraw();
  }

  /** Called when the column was removed from the page and is inserted again. */
  shown() {
    for (const id of this.chat.ids) this.dirty.add(id);
    this.redraw();
  }
}

/** Before the first later one; `end` is appended to the list afterwards. */
function place(node, id, list, end = list) {
  const later = [...list.children].find((other) => Number(other.dataset.id) > id);
  if (later) later.before(node);
  else end.append(node);
}

function doing(action) {
  const what = { typing: "typing", upload_photo: "sending a photo", upload_document: "sending a file" };
  return `${what[action] ?? (action ?? "typing").replaceAll("_", " ")} …`;
}
