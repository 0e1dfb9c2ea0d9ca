"""Restate: one virtual object for each key."""

from bench.ordered.servers import NODE_RESTATE, Restate
from bench.ordered.system import System

SYSTEM = System(
    title="Restate, virtual objects",
    claims="in order, one at a time for each object; an invocation continues from its journal after a crash",
    pages=(
        "https://docs.restate.dev/foundations/services#virtual-object",
        "https://docs.restate.dev/develop/ts/error-handling",
        "https://docs.restate.dev/references/server-config",
    ),
    server=Restate,
    environment={"RESTATE_LOGGING": "WARN"},
    node=NODE_RESTATE,
    setup=("node", "{home}/setup.cjs"),
    worker=("node", "{home}/worker.cjs"),
    producer=("node", "{home}/produce.cjs"),
)
