// Creates elements. Text stays text: nothing is parsed as HTML.

const SVG = "http://www.w3.org/2000/svg";

/** `h("button.primary", {title: "…", onclick: f}, "text", node, null)`; names with a dash and aria become attributes. */
export function h(what, props = {}, ...children) {
  const [tag, ...classes] = what.split(".");
  const node = document.createElement(tag);
  if (classes.length) node.className = classes.join(" ");
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "dataset") Object.assign(node.dataset, value);
    else if (name in node && !name.includes("-")) node[name] = value;
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

/** One of the symbols of index.html; decoration, never the only sign of a state. */
export function icon(name) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("class", "icon");
  svg.setAttribute("aria-hidden", "true");
  const use = document.createElementNS(SVG, "use");
  use.setAttribute("href", `#i-${name}`);
  svg.append(use);
  return svg;
}

export const byId = (id) => document.getElementById(id);

/** Writes only a different text: an unchanged node needs no layout. */
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** Replaces the children only if `key` has changed. */
export function renew(node, key, build) {
  if (node._key === key) return;
  node._key = key;
  node.replaceChildren(...[build()].flat(Infinity).filter(Boolean));
}

/** A constant colour for a person without a picture, as at Telegram. */
export const hueOf = (id) => Math.abs(Number(id)) % 7;

export function avatar(id, name) {
  const words = name.trim().split(/\s+/);
  const letters = [words[0], words.length > 1 ? words.at(-1) : ""].map((word) => [...word][0] ?? "").join("").toUpperCase();
  return h("span.avatar", { dataset: { hue: hueOf(id) }, "aria-hidden": "true" }, letters);
}
