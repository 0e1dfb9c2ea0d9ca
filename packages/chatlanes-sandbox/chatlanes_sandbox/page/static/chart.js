// The backlog of the last 90 s, with a mark for each killed worker. Decoration: the figures are below it.

import { h } from "./dom.js";
import { whileSeen } from "./frames.js";

const SECONDS = 90;
const HEIGHT_PX = 56;
/** The least top of the scale, so that a single update is drawn low. */
const LOWEST_TOP = 20;

const canvas = h("canvas.chart", { "aria-hidden": "true" });
const points = []; // [seconds, all that is not settled or buried]
const kills = [];
let killed = null;

function add(lanes) {
  if (!lanes) return;
  const now = performance.now() / 1000;
  const { waiting, handed_out: handedOut, running, delayed } = lanes.counts;
  points.push([now, waiting + handedOut + running + delayed]);
  if (killed !== null && lanes.killed > killed) kills.push(now);
  killed = lanes.killed;
  while (points.length > 2 && points[1][0] < now - SECONDS) points.shift();
  while (kills.length && kills[0] < now - SECONDS) kills.shift();
}

function draw() {
  const width = canvas.clientWidth;
  if (!width) return;
  const scale = devicePixelRatio;
  if (canvas.width !== Math.round(width * scale)) {
    canvas.width = Math.round(width * scale);
    canvas.height = HEIGHT_PX * scale;
  }
  const pen = canvas.getContext("2d");
  const colour = getComputedStyle(canvas);
  const now = performance.now() / 1000;
  const top = Math.max(LOWEST_TOP, ...points.map(([, value]) => value)) * 1.1;
  const x = (at) => width * (1 - (now - at) / SECONDS);
  const y = (value) => HEIGHT_PX - 1 - (HEIGHT_PX - 6) * (value / top);
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  pen.clearRect(0, 0, width, HEIGHT_PX);
  area(pen, [...points, [now, points.at(-1)?.[1] ?? 0]].map(([at, value]) => [x(at), y(value)]), colour);
  pen.fillStyle = colour.caretColor;
  for (const at of kills) {
    pen.fillRect(x(at) - 0.75, 4, 1.5, HEIGHT_PX - 4);
    pen.fillRect(x(at) - 3, 2, 6, 6);
  }
}

/** Steps: nothing is known between two points. */
function area(pen, line, colour) {
  const top = new Path2D();
  let height = line[0][1];
  top.moveTo(line[0][0], height);
  for (const [px, py] of line) {
    top.lineTo(px, height);
    top.lineTo(px, py);
    height = py;
  }
  const below = new Path2D(top);
  below.lineTo(line.at(-1)[0], HEIGHT_PX);
  below.lineTo(line[0][0], HEIGHT_PX);
  pen.fillStyle = pen.strokeStyle = colour.color;
  pen.globalAlpha = 0.22;
  pen.fill(below);
  pen.globalAlpha = 1;
  pen.lineWidth = 1.5;
  pen.stroke(top);
}

whileSeen(250, draw);
export const chart = { node: canvas, add };
