"""`sentinel://`: the master dies under load, and every update that was confirmed to Telegram runs to its end."""

from __future__ import annotations

from pathlib import Path

from tests.pipeline.conftest import MakePipeline
from tests.pipeline.outages.sentinels import NAME, PASSWORD, start_watched
from tests.support.pipeline import conversations
from tests.support.waiting import until


def test_a_failover_under_load_loses_nothing_that_a_replica_had(make_pipeline: MakePipeline, tmp_path: Path) -> None:
    # Given a poller whose batches wait for a replica, and a worker, in the middle of 800 updates
    with start_watched(tmp_path) as redis:
        pipeline = make_pipeline(redis_url=redis.url, SENTINEL_MASTER=NAME, DURABLE_REPLICAS=1, MAX_PENDING=100)
        ids = pipeline.push(*conversations(chats=40, each=20))
        poller, worker = pipeline.poller(), pipeline.worker("prefork", 2)
        pipeline.some_ended(200)
        # When the master dies and does not return
        redis.master.kill()
        # Then poller and worker find the new one by themselves, and every update runs to its end
        until(lambda: pipeline.simulator.stats()["confirmed"] == len(ids))
        until(lambda: set(pipeline.happened("end")) == set(ids))
        pipeline.drained()
        assert pipeline.leftovers() == []
        # And in order. If no replica has received the end of an update, it may run again
        firsts = list(dict.fromkeys(pipeline.happened("start")))
        for chat in set(pipeline.lanes.values()):
            lane = [each for each in ids if pipeline.lanes[each] == chat]
            assert [each for each in firsts if pipeline.lanes[each] == chat] == lane
        poller.tells("Redis: works again")
        assert PASSWORD not in worker.log + poller.log
        worker.stop()
        poller.stop()
