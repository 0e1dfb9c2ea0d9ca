// Telegram's text with entities as elements. Foreign text stays text; links have only web addresses.

import { h } from "./dom.js";
import { tell } from "./world.js";

const TAGS = {
  bold: "strong",
  italic: "em",
  underline: "u",
  strikethrough: "s",
  code: "code",
  pre: "pre",
  blockquote: "blockquote",
  expandable_blockquote: "blockquote",
  spoiler: "span.spoiler",
  mention: "span.mention",
  text_mention: "span.mention",
  hashtag: "span.mention",
  cashtag: "span.mention",
};
const SAFE = new Set(["http:", "https:", "mailto:"]);

/** Offsets are UTF-16 code units, as JavaScript counts; entities may nest, and are cut at the end of the text. */
export function rich(text, entities, chatId) {
  const waiting = (entities ?? [])
    .filter((entity) => entity.length > 0 && entity.offset >= 0)
    .sort((a, b) => a.offset - b.offset || b.length - a.length);
  return fill(document.createDocumentFragment(), text, 0, text.length, waiting, chatId);
}

function fill(into, text, from, to, waiting, chatId) {
  let at = from;
  while (waiting.length && waiting[0].offset < to) {
    const entity = waiting.shift();
    const start = Math.max(entity.offset, at);
    const end = Math.min(entity.offset + entity.length, to);
    if (end <= start) continue;
    into.append(text.slice(at, start));
    into.append(fill(element(entity, text.slice(start, end), chatId), text, start, end, waiting, chatId));
    at = end;
  }
  into.append(text.slice(at, to));
  return into;
}

function element(entity, text, chatId) {
  switch (entity.type) {
    case "url":
      return link(/^[a-z]+:/i.test(text) ? text : `https://${text}`);
    case "text_link":
      return link(entity.url ?? "");
    case "email":
      return link(`mailto:${text}`);
    case "bot_command":
      return h("button.command", { type: "button", title: `Send ${text}`, onclick: () => tell("command", chatId, text) });
    default:
      return h(TAGS[entity.type] ?? "span");
  }
}

export function safeAddress(address) {
  try {
    const url = new URL(address, location.href);
    return SAFE.has(url.protocol) ? url.href : null;
  } catch {
    return null;
  }
}

function link(address) {
  const href = safeAddress(address);
  return href ? h("a", { href, target: "_blank", rel: "noopener noreferrer" }) : h("span.mention");
}
