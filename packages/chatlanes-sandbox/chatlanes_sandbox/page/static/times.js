// Times and numbers in readable form.

export function span(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 0.0095) return `${(seconds * 1000).toFixed(1)} ms`;
  if (seconds < 0.9995) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 99.95) return `${seconds.toFixed(1)} s`;
  return `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
}

const CLOCK = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", hour12: false });
const CLOCK_S = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });
const DAY = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "long" });

export const clock = (atS) => CLOCK.format(atS * 1000);
export const clockWithSeconds = (atS) => CLOCK_S.format(atS * 1000);
export const day = (atS) => DAY.format(atS * 1000);
export const count = (n) => n.toLocaleString("en");
