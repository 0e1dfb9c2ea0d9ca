require("./service.cjs").serve(Number(process.env.REFEREE_WORKER));
