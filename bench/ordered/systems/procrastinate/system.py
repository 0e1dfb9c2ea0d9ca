"""procrastinate on PostgreSQL: one lock for each key."""

from bench.ordered.servers import PostgreSQL
from bench.ordered.system import System

SYSTEM = System(
    title="procrastinate, locks",
    claims="in order, one at a time for each lock",
    pages=(
        "https://procrastinate.readthedocs.io/en/stable/howto/advanced/locks.html",
        "https://procrastinate.readthedocs.io/en/stable/howto/production/retry_stalled_jobs.html",
    ),
    server=PostgreSQL,
    python=("procrastinate==3.10.0", "psycopg[binary]==3.3.9"),
    setup=("{bin}/procrastinate", "--app", "app.app", "schema", "--apply"),
    worker=("{bin}/procrastinate", "--app", "app.app", "worker", "--concurrency", "16", "--name", "w{worker}"),
    producer=("{bin}/python", "{home}/produce.py"),
)
