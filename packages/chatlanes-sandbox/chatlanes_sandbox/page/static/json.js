// JSON for reading, with its kinds in colours. The text is cut into text nodes and spans, never parsed as HTML.

import { h } from "./dom.js";

const TOKEN = /("(?:\\.|[^"\\])*")(\s*:)?|\b(?:true|false|null)\b|-?\d+(?:\.\d+)?(?:e[+-]?\d+)?/gi;

export function json(value) {
  const text = JSON.stringify(value, null, 2) ?? "null";
  const node = h("pre.json", { tabIndex: 0 });
  let at = 0;
  for (const match of text.matchAll(TOKEN)) {
    const [whole, string, colon] = match;
    node.append(text.slice(at, match.index), h(`span.${colon ? "name" : string ? "string" : "value"}`, {}, string ?? whole), colon ?? "");
    at = match.index + whole.length;
  }
  node.append(text.slice(at));
  return node;
}
