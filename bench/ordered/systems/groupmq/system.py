"""groupmq on Redis: one group for each key."""

from bench.ordered.servers import Redis
from bench.ordered.system import System

SYSTEM = System(
    title="groupmq",
    claims="in order, one at a time for each group",
    pages=("https://openpanel-dev.github.io/groupmq/", "https://www.npmjs.com/package/groupmq"),
    server=Redis,
    node=("groupmq@1.1.0", "ioredis@5.9.2"),
    worker=("node", "{home}/worker.cjs"),
    producer=("node", "{home}/produce.cjs"),
    avoid="no documented one: what a dead worker ran blocks its group indefinitely, a known fault "
    "(github.com/Openpanel-dev/groupmq/issues/14)",
)
