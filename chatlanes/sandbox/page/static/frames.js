// Drawing just before a paint. Promises that however many events come, each thing is drawn once with its newest state, and
// that under a flood there is time left between two drawings: for the reader's own clicks and keys.

/** Nobody reads faster; the first drawing after a pause is at once. */
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

/** Calls `tick` every `everyMs` while somebody looks. */
export function whileSeen(everyMs, tick) {
  setInterval(() => document.visibilityState === "visible" && tick(), everyMs);
}
