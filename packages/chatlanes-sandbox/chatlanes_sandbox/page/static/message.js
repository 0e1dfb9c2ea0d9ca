// One message. Redraws only changed parts, so that a flood of states costs one mark each and no layout.

import { h, hueOf, icon, renew, setText } from "./dom.js";
import { rich, safeAddress } from "./rich.js";
import { clock, day, span } from "./times.js";
import { tell } from "./world.js";

export const STATES = {
  waiting: "waiting in its lane",
  running: "running",
  delayed: "waiting for a retry",
  buried: "buried",
  done: "done",
};

const STOPPED = "stopped by a newer message; the next run gets both";

export class MessageView {
  /** `before` is the message above it, or null. */
  constructor(chat, message, before) {
    this.chat = chat;
    this.message = message;
    const own = !message.user.is_bot;
    const side = message.kind === "service" ? "service" : own ? "out" : "in";
    const follows = before && before.user.id === message.user.id && message.date_s - before.date_s < 300;
    this.body = h("div.body");
    this.meta = h("button.meta", { type: "button", tabIndex: -1, onclick: (event) => this.select(event) });
    this.fault = h("button.fault", { type: "button", hidden: true, onclick: (event) => this.select(event) });
    this.buttons = h("div.inline");
    this.reactions = h("div.reactions");
    this.acts = own ? this.actions() : h("div.acts", {}, this.act("reply", "Reply", "reply"));
    this.bubble = h("div.bubble", { onclick: (event) => this.clicked(event) }, this.body, this.meta);
    this.node = h(`article.msg.${side}${follows ? ".follows" : ""}`, { dataset: { id: message.message_id } });
    if (!before || day(before.date_s) !== day(message.date_s)) this.node.dataset.day = day(message.date_s);
    this.node.append(h("div.line", {}, this.bubble, this.acts), this.fault, this.buttons, this.reactions);
    this.update(message);
  }

  update(message) {
    this.message = message;
    const { deleted, edited, buttons, reactions, state } = message;
    this.node.classList.toggle("deleted", deleted);
    this.node.classList.toggle("ephemeral", Boolean(message.seen_by));
    renew(this.body, JSON.stringify([message.text, message.entities, message.photo, message.file, message.kind, deleted]), () =>
      content(this.chat, message),
    );
    const place = placeInGroup(message);
    this.node.classList.toggle("collected", place !== "");
    this.node.dataset.place = place;
    renew(this.meta, `${state} ${edited} ${place} ${message.attempt > 1 ? message.attempt : ""}`, () => meta(message));
    this.meta.setAttribute("aria-label", described(message));
    this.meta.title = tooltip(message);
    const fault = message.stopped ? STOPPED : message.error;
    this.fault.hidden = !fault || state === "done" || !hasMark(message);
    this.fault.classList.toggle("stopped", message.stopped);
    setText(this.fault, fault ?? "");
    renew(this.buttons, JSON.stringify(deleted ? null : [buttons, pressed(message)]), () => inline(this.chat, message));
    renew(this.reactions, JSON.stringify(reactions ?? []), () =>
      (reactions ?? []).map((one) => h("span", { role: "img", "aria-label": `Reaction ${one}` }, one)),
    );
  }

  actions() {
    return h("div.acts", {}, this.act("reply", "Reply", "reply"), this.act("edit", "Edit", "edit"));
  }

  act(symbol, label, what) {
    const onclick = () => tell(what, this.chat, this.message);
    return h("button", { type: "button", title: label, "aria-label": label, onclick }, icon(symbol));
  }

  /** The bubble is a large target for the mouse; the keyboard has the button with the time. */
  clicked(event) {
    if (event.target.closest("a, button") || !getSelection().isCollapsed) return;
    this.select(event);
  }

  select(event) {
    event.stopPropagation();
    tell("select", this.chat, this.message, this.node);
  }
}

function content(chat, message) {
  const { user, kind, text, photo, file, deleted, reply_to: replyTo } = message;
  const parts = [];
  if (chat.info.type !== "private" && !user.is_bot) parts.push(h("div.who", { dataset: { hue: hueOf(user.id) } }, user.first_name));
  if (message.seen_by) parts.push(h("div.only", {}, `Only ${message.seen_by.first_name} sees this`));
  if (replyTo) parts.push(quote(chat, replyTo));
  if (photo) parts.push(picture(photo));
  if (file) parts.push(attachment(file, kind));
  if (text) parts.push(h("div.text", { dir: "auto" }, rich(text, message.entities, chat.info.id)));
  else if (!photo && !file) parts.push(h("div.text.kind", {}, kind === "text" ? "(empty)" : kind.replaceAll("_", " ")));
  if (deleted) parts.push(h("div.gone", {}, "deleted"));
  return parts;
}

function quote(chat, id) {
  const quoted = chat.messages.get(id);
  const text = quoted ? quoted.text || quoted.kind : "a message that does not exist any more";
  return h("div.quote", {}, quoted && h("b", {}, quoted.user.first_name), h("span", {}, text));
}

function picture(url) {
  const href = safeAddress(url);
  if (!href) return null;
  return h("a.photo", { href, target: "_blank", rel: "noopener" }, h("img", { src: href, alt: "Photo", loading: "lazy" }));
}

function attachment(file, kind) {
  const href = file.url ? safeAddress(file.url) : null;
  const label = [icon("file"), h("span", {}, file.name || kind)];
  return href ? h("a.file", { href, target: "_blank", rel: "noopener" }, label) : h("span.file", {}, label);
}

/** The updates of one run have one bracket, and one mark at its end. */
function placeInGroup({ group, update_id: id }) {
  if (!(group?.length > 1)) return "";
  return id === group.at(-1) ? "last" : id === group[0] ? "first" : "within";
}

const hasMark = (message) => ["", "last"].includes(placeInGroup(message));

function meta(message) {
  const { state, edited, attempt } = message;
  const marked = state && hasMark(message);
  return [
    edited && h("span", {}, "edited"),
    marked && attempt > 1 && state !== "done" && h("span.try", {}, `try ${attempt}`),
    h("time", {}, clock(message.date_s)),
    marked && h(`span.mark.${state}`, {}, icon(state)),
  ];
}

function described(message) {
  const state = message.state ? `, ${STATES[message.state]}` : "";
  return `Details of message ${message.message_id}, ${clock(message.date_s)}${state}${message.edited ? ", edited" : ""}`;
}

function tooltip({ state, waited_s: waited, took_s: took, attempt }) {
  if (!state) return "Details";
  const times = [waited !== null && `waited ${span(waited)}`, took !== null && `ran ${span(took)}`, attempt > 1 && `try ${attempt}`];
  return [STATES[state], ...times.filter(Boolean)].join(" · ");
}

function inline(chat, message) {
  if (message.deleted || !message.buttons) return [];
  return message.buttons.map((row) => h("div", {}, row.map((button) => inlineButton(chat, message, button))));
}

/** The state of the last press of each button, while it is not done: data -> state. */
function pressed(message) {
  const states = Object.fromEntries((message.presses ?? []).map((press) => [press.data, press.state]));
  return Object.fromEntries(Object.entries(states).filter(([, state]) => state && state !== "done"));
}

function inlineButton(chat, message, { text, data, url }) {
  const href = url ? safeAddress(url) : null;
  if (href) return h("a.key", { href, target: "_blank", rel: "noopener noreferrer" }, text);
  const usable = data !== null && data !== undefined;
  const state = usable ? pressed(message)[data] : null;
  const onclick = (event) => tell("press", chat, message, data, event.detail > 0);
  const mark = state && h(`span.mark.${state}`, { role: "img", "aria-label": STATES[state] }, icon(state));
  return h("button.key", { type: "button", disabled: !usable, onclick }, h("span", {}, text), mark);
}
