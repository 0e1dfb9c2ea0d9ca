// One of the threads to which runner.cjs distributes the work.
const { BotWorker } = require("@grammyjs/runner");
const { compute } = require("./handlers.cjs");

const bot = new BotWorker(process.env.BOT_TOKEN, { client: { apiRoot: process.env.BOT_API_URL } });
bot.use(compute);
