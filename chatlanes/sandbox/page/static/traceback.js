// A traceback in which the bot's own lines stand out from those of chatlanes, the framework and Python.

import { h } from "./dom.js";

const FRAME = /^\s*File "([^"]+)", line \d+/;
const THEIRS = /\/(site-packages|dist-packages|lib\/python[\d.]+)\/|\/chatlanes\/(?!demo\/)\w+\/|^<frozen/;

export function traceback(text) {
  const node = h("pre.traceback", { tabIndex: 0, role: "region", "aria-label": "Traceback" });
  let isTheirs = false;
  for (const line of text.split("\n")) {
    const frame = FRAME.exec(line);
    if (frame) isTheirs = THEIRS.test(frame[1]);
    else if (!/^\s/.test(line)) isTheirs = false;
    node.append(h(isTheirs ? "span.theirs" : "span", {}, `${line}\n`));
  }
  // The error, and the line that raised it, are at the end. The box may be shown later: until then it has no height.
  const shown = new ResizeObserver(() => {
    if (!node.clientHeight) return;
    node.scrollTop = node.scrollHeight;
    shown.disconnect();
  });
  shown.observe(node);
  return node;
}
