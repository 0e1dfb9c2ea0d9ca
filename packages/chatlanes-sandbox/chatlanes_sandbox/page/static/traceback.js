// A traceback in which the bot's own lines stand out from those of chatlanes, the framework and Python.

import { h } from "./dom.js";

const FRAME = /^\s*File "([^"]+)", line \d+/;
const THEIRS = /\/(site-packages|dist-packages|lib\/python[\d.]+)\/|\/chatlanes\/(?!demo\/)\w+\/|^<frozen/;

export function traceback(text) {
  const node = h("pre.traceback", { tabIndex: 0, role: "region", "aria-label": "Traceback" });
  let isTheirs = false;
  const lines = text.trimEnd().split("\n");
  const lastFrame = lines.findLastIndex((line) => FRAME.test(line));
  for (const [number, line] of lines.entries()) {
    const frame = FRAME.exec(line);
    if (frame) isTheirs = THEIRS.test(frame[1]);
    else if (!/^\s/.test(line)) isTheirs = false;
    const isError = number > lastFrame && !/^\s/.test(line);
    node.append(h(isError ? "span.error" : isTheirs ? "span.theirs" : "span", {}, isError ? line : `${line}\n`));
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
