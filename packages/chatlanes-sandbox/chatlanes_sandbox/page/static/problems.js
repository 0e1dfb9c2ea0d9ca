// Problems of the bot, the newest first. A bot that does not import is also shown at the top of the page.

import { api } from "./api.js";
import { byId, h, icon, renew } from "./dom.js";
import { beforePaint } from "./frames.js";
import { show } from "./side.js";
import { clockWithSeconds } from "./times.js";
import { traceback as shown } from "./traceback.js";
import { asking, on, tell, world } from "./world.js";

const KINDS = { import: "The bot does not import", handler: "A handler raised", worker: "A worker ended" };

const panel = byId("panel-problems");
const trouble = byId("trouble");
let linked = true;
let since = 0;

function draw() {
  renew(panel, JSON.stringify(world.problems), () =>
    world.problems.length
      ? [h("h2.sr", {}, "Problems"), ...[...world.problems].reverse().map(card)]
      : [h("p.empty", {}, "No problems. A handler that raises, a bot that does not import and a worker that does not start are shown here, with the traceback.")],
  );
  drawTrouble();
}

function card(problem, index) {
  const { at_s: at, kind, title, traceback, update_id: updateId, solved, chat, runs_since_s: since } = problem;
  const to = updateId && h("button.link", { type: "button", onclick: () => tell("select-update", updateId) }, `update ${updateId}`);
  return h(`article.problem.${kind}${solved ? ".solved" : ""}`, {},
    h("p.problem-kind", {}, icon(solved ? "done" : "problem"), `${KINDS[kind] ?? kind}${chat ? ` in ${chat}` : ""}${solved ? ", solved" : ""}`, h("time", {}, clockWithSeconds(at)), to),
    h("h3", {}, title),
    since && !solved && h("p.still", {}, stillRuns(since)),
    traceback && h("details", { open: index === 0 && !solved }, h("summary", {}, "Traceback"), shown(traceback)));
}

const stillRuns = (since) => `The workers still run the code of ${clockWithSeconds(since)}, the last that could be imported.`;

function drawTrouble() {
  const broken = world.problems.findLast((problem) => problem.kind === "import" && !problem.solved) ?? null;
  trouble.hidden = linked && !broken;
  document.body.classList.toggle("lost", !linked);
  renew(trouble, `${linked} ${JSON.stringify(broken)}`, () => {
    if (!linked) return [h("b", {}, "The sandbox does not answer."), h("span", {}, "It was stopped, or it is starting. The page reconnects by itself and shows the last known state.")];
    if (!broken) return [];
    return [h("b", {}, `${world.bot.path} does not import.`), h("span", {}, broken.title), broken.runs_since_s && h("span.still", {}, stillRuns(broken.runs_since_s)), h("button.link", { type: "button", onclick: () => show("problems") }, "Traceback"), h("button.link", { type: "button", onclick: restart }, "Try again")];
  });
}

async function restart() {
  if (await asking(api.restart)) tell("told", "The workers restart with the bot as it is now.");
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
