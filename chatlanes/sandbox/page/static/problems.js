// What went wrong with the bot, newest first; one that does not import is said above everything else too.

import { api } from "./api.js";
import { byId, h, icon, renew } from "./dom.js";
import { beforePaint } from "./frames.js";
import { show } from "./side.js";
import { clockWithSeconds } from "./times.js";
import { traceback as shown } from "./traceback.js";
import { on, tell, world } from "./world.js";

const KINDS = { import: "The bot does not import", handler: "A handler raised", worker: "A worker ended" };

const panel = byId("panel-problems");
const trouble = byId("trouble");
let linked = true;
let since = 0;

function draw() {
  renew(panel, JSON.stringify(world.problems), () =>
    world.problems.length
      ? [h("h2.sr", {}, "Problems"), ...[...world.problems].reverse().map(card)]
      : [h("p.empty", {}, "Nothing went wrong. A handler that raises, a bot that does not import, a worker that was killed: it would stand here, with its traceback.")],
  );
  drawTrouble();
}

function card(problem, index) {
  const { at_s: at, kind, title, traceback, update_id: updateId, solved } = problem;
  const to = updateId && h("button.link", { type: "button", onclick: () => tell("select-update", updateId) }, `update ${updateId}`);
  return h(`article.problem.${kind}${solved ? ".solved" : ""}`, {},
    h("p.problem-kind", {}, icon(solved ? "done" : "problem"), `${KINDS[kind] ?? kind}${solved ? ", solved" : ""}`, h("time", {}, clockWithSeconds(at)), to),
    h("h3", {}, title),
    traceback && h("details", { open: index === 0 && !solved }, h("summary", {}, "Traceback"), shown(traceback)));
}

function drawTrouble() {
  const broken = world.problems.findLast((problem) => problem.kind === "import" && !problem.solved) ?? null;
  trouble.hidden = linked && !broken;
  document.body.classList.toggle("lost", !linked);
  renew(trouble, `${linked} ${JSON.stringify(broken)}`, () => {
    if (!linked) return [h("b", {}, "The sandbox does not answer."), h("span", {}, "It was stopped, or it is starting. This page connects again by itself; what you see is how it was.")];
    if (!broken) return [];
    return [h("b", {}, `${world.bot.path} does not import.`), h("span", {}, broken.title), h("button.link", { type: "button", onclick: () => show("problems") }, "Traceback"), h("button.link", { type: "button", onclick: restart }, "Try again")];
  });
}

async function restart() {
  try {
    await api.restart();
    tell("told", "The workers start again, with the bot as it is now.");
  } catch (error) {
    tell("refused", error);
  }
}

export function linkChanged(isUp) {
  if (isUp === linked && since) return;
  linked = isUp;
  since = Date.now();
  drawTrouble();
}

byId("restart").addEventListener("click", restart);
on("problems", () => beforePaint("problems", draw));
on("snapshot", draw);
