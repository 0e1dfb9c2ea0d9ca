// Drawing just before a paint. Guarantees that each thing is drawn once with its newest state, however many events arrive,
// and that under a flood there is time between two drawings for clicks and keys.

/** The least pause between two drawings; the first one after a pause is immediate. */
const BETWEEN_MS = 80;

const due = new Map();
let asked = false;
let lastMs = 0;

/** `draw` of the last call with this key runs before one of the next paints. */
export function beforePaint(key, draw) {
  due.set(key, draw);
  if (asked) return;
  asked = true;
  const restMs = lastMs + BETWEEN_MS - performance.now();
  if (restMs > 0) setTimeout(() => requestAnimationFrame(drawAll), restMs);
  else requestAnimationFrame(drawAll);
}

function drawAll() {
  asked = false;
  const now = [...due.values()];
  due.clear();
  for (const draw of now) draw();
  lastMs = performance.now();
}

/** Calls `tick` every `everyMs` while the page is visible. */
export function whileSeen(everyMs, tick) {
  setInterval(() => document.visibilityState === "visible" && tick(), everyMs);
}
