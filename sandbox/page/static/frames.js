// Drawing at most once a frame. Promises that however many events come, each thing is drawn once, with its newest state.

const due = new Map();
let asked = false;

/** `draw` of the last call with this key runs before the next paint. */
export function beforePaint(key, draw) {
  due.set(key, draw);
  if (asked) return;
  asked = true;
  requestAnimationFrame(() => {
    asked = false;
    const now = [...due.values()];
    due.clear();
    for (const one of now) one();
  });
}

/** Calls `tick` every `everyMs` while somebody looks. */
export function whileSeen(everyMs, tick) {
  setInterval(() => document.visibilityState === "visible" && tick(), everyMs);
}
