// The panels: beside the chats on a laptop, instead of them on a phone.

import { byId, h, icon, setText } from "./dom.js";
import { on, world } from "./world.js";

const VIEWS = [
  ["chats", "Chats", "chats"],
  ["lanes", "Lanes", "lanes"],
  ["update", "Update", "update"],
  ["problems", "Problems", "problem"],
];
const PANELS = VIEWS.slice(1);

const tabs = new Map();
const docks = new Map();

/** Shows a panel; on a phone instead of the chats. */
export function show(view) {
  document.body.dataset.view = view;
  for (const [name, button] of docks) button.setAttribute("aria-current", name === view ? "page" : "false");
  if (view === "chats") return;
  for (const [name, tab] of tabs) {
    tab.setAttribute("aria-selected", String(name === view));
    tab.tabIndex = name === view ? 0 : -1;
    byId(`panel-${name}`).hidden = name !== view;
  }
  if (view === "problems") world.unseenProblems = 0;
  countProblems();
}

function countProblems() {
  for (const button of [tabs.get("problems"), docks.get("problems")]) {
    const badge = button.querySelector(".badge");
    badge.hidden = world.problems.length === 0;
    badge.classList.toggle("seen", world.unseenProblems === 0);
    setText(badge, String(world.problems.length));
  }
}

const badge = () => h("span.badge", { hidden: true });

for (const [name, label] of PANELS) {
  const props = { id: `tab-${name}`, type: "button", role: "tab", "aria-controls": `panel-${name}`, onclick: () => show(name) };
  tabs.set(name, h("button", props, label, badge()));
}
for (const [name, label, symbol] of VIEWS) {
  docks.set(name, h("button", { type: "button", onclick: () => show(name) }, icon(symbol), h("span", {}, label), badge()));
}
byId("tabs").append(...tabs.values());
byId("dock").append(...docks.values());
byId("tabs").addEventListener("keydown", (event) => {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!step) return;
  const names = [...tabs.keys()];
  const now = names.findIndex((name) => tabs.get(name) === document.activeElement);
  const next = names[(now + step + names.length) % names.length];
  show(next);
  tabs.get(next).focus();
});
on("problems", countProblems);
show("lanes");
show("chats");
