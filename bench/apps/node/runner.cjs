// node runner.cjs wait|compute|distribute: grammY's runner as in its documentation, until SIGTERM.
// Each chat in order (sequentialize); updates are in memory, and already confirmed to Telegram before they are handled.
const { Bot } = require("grammy");
const { distribute, run, sequentialize } = require("@grammyjs/runner");
const handlers = require("./handlers.cjs");

const kind = process.argv[2];
const me = { id: 1, is_bot: true, first_name: "bench", username: "bench_bot" };
const bot = new Bot(process.env.BOT_TOKEN, { client: { apiRoot: process.env.BOT_API_URL }, botInfo: me });
bot.use(sequentialize((ctx) => String(ctx.chat.id)));
bot.use(kind === "distribute" ? distribute(`${__dirname}/worker.cjs`, { count: 2 }) : handlers[kind]);
run(bot, { sink: { concurrency: Number(process.env.BENCH_CONCURRENCY) } });
