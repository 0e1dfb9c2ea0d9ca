"""NATS JetStream: keys in partitions, each with a consumer that lets one message be unacknowledged at a time."""

from bench.ordered.servers import NATS_SERVER, Nats
from bench.ordered.system import System

SYSTEM = System(
    title="NATS JetStream, partitions",
    claims="in order and one at a time for each partition, while acknowledgements arrive in time",
    pages=(
        "https://docs.nats.io/nats-concepts/subject_mapping#deterministic-subject-token-partitioning",
        "https://docs.nats.io/nats-concepts/jetstream/consumers",
        "https://docs.nats.io/running-a-nats-service/configuration/resource_management",
    ),
    server=Nats,
    python=(NATS_SERVER, "nats-py==2.16.0"),
    setup=("{bin}/python", "{home}/stream.py"),
    worker=("{bin}/python", "{home}/work.py"),
    producer=("{bin}/python", "{home}/produce.py"),
    avoid="none: a worker that was frozen runs what it had received, though another ran it meanwhile",
)
