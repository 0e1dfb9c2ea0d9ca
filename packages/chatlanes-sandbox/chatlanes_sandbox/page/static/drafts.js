// Drafts: previews of a message that is being generated, below the messages of their chat.

import { h, icon, renew } from "./dom.js";
import { rich } from "./rich.js";
import { tell } from "./world.js";

const endings = new WeakMap(); // chat -> the timer of its next end

export function drawDrafts(into, chat, redraw) {
  const drafts = chat.drafts.filter((draft) => draft.endsAt > Date.now());
  into.hidden = drafts.length === 0;
  renew(into, JSON.stringify(drafts.map(({ text, entities, can_stop, draft_id: id }) => [id, text, entities, can_stop])), () =>
    drafts.map((draft) => preview(chat, draft)),
  );
  clearTimeout(endings.get(chat));
  if (!drafts.length) return;
  const next = Math.min(...drafts.map((draft) => draft.endsAt)) - Date.now();
  endings.set(chat, setTimeout(redraw, next + 10));
}

function preview(chat, draft) {
  const text = draft.text ? h("div.text", { dir: "auto" }, rich(draft.text, draft.entities, chat.info.id)) : h("div.text.kind", {}, "Thinking…");
  const stop = draft.can_stop && h("button.key", { type: "button", onclick: () => tell("stop", chat, draft) }, icon("close"), h("span", {}, "Stop"));
  const node = h("div.msg.in.draft", {}, h("div.line", {}, h("div.bubble", {}, text)), h("div.inline", {}, stop));
  node.setAttribute("role", "group");
  node.setAttribute("aria-label", "Draft");
  return node;
}
