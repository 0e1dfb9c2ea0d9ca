"""The trace of an update spans the poller, every run, and each Bot API call."""

from __future__ import annotations

from tests.pipeline.conftest import MakePipeline
from tests.pipeline.monitoring.collector import Collector
from tests.support.pipeline import BOT_ID, SECRET, message
from tests.support.waiting import until

TEXT = "PRIVATE-words"


def test_a_trace_continues_after_the_death_of_a_worker(make_pipeline: MakePipeline, collector: Collector) -> None:
    # Given an update whose worker is killed after its first call, one that fails twice, and one that gets a 429
    pipeline = make_pipeline(
        LEASE_SECONDS=4,
        RETRY_BACKOFF=0.01,
        LOG_FORMAT="json",
        OTEL_EXPORTER_OTLP_ENDPOINT=collector.address,
        OTEL_BSP_SCHEDULE_DELAY=600_000,  # spans are sent when the process stops
    )
    victim = pipeline.worker("prefork", 2, OTEL_BSP_SCHEDULE_DELAY=100)
    pipeline.simulator.fault(method="sendMessage", chat_id=9, status=429, retry_after=1)
    killed, failed, flooded = pipeline.push(
        message(1, 7, do=f"{TEXT} spans:own says:{TEXT} gate:a"),
        message(2, 8, do=f"{TEXT} fails:1 raises_token:2"),
        message(3, 9, do=TEXT),
    )
    poller = pipeline.poller()
    pipeline.ended(failed, flooded)
    until(lambda: len(collector.named("sendMessage")) == 3)
    victim.kill_all()
    # When another worker runs it
    survivor = pipeline.worker("prefork", 1)
    pipeline.open("a")
    pipeline.drained()
    poller.stop()
    survivor.stop()
    # Then both runs are children of the poller's span, in one trace
    ids = {update: f"{BOT_ID}:{update}" for update in (killed, failed, flooded)}
    [create] = collector.of_update(ids[killed], "create")
    assert (create.kind, create.parent, create.process[0]) == ("producer", "", "chatlanes-poller")
    assert create.fields["chatlanes.chat"] == 7
    [second] = collector.of_update(ids[killed], "process")  # the span of the first run was lost with its process
    calls = [span for span in collector.named("sendMessage") if span.fields["chatlanes.chat"] == 7]
    assert {span.trace for span in (second, *calls)} == {create.trace}
    assert (second.parent, second.kind) == (create.id, "consumer")
    fields = {name: second.fields[f"chatlanes.{name}"] for name in ("attempt", "died", "outcome", "bot")}
    assert fields == {"attempt": 2, "died": 1, "outcome": "settled", "bot": str(BOT_ID)}
    assert second.fields["chatlanes.fence"] > 0
    # And the second run replays the call of the first one, and contains the bot's own span
    assert [(span.fields["chatlanes.replayed"], span.parent == second.id) for span in calls] == [
        (False, False),
        (True, True),
        (False, True),
    ]
    assert {span.parent for span in collector.named("the bot's own")} >= {second.id}
    # And failed attempts are marked as errors, and all attempts have the same parent
    runs = collector.of_update(ids[failed], "process")
    assert [(run.fields["chatlanes.attempt"], run.fields["chatlanes.outcome"], run.is_error) for run in runs] == [
        (1, "retried", True),
        (2, "retried", True),
        (3, "settled", False),
    ]
    assert len({run.parent for run in runs}) == 1
    assert runs[1].events[0][1]["exception.message"] == "https://example.org/bot<token>/getMe"
    assert runs[0].events[0][1]["exception.message"] == f"attempt 1 of {failed}"
    # And a refused call has events for the 429 and the wait
    [call] = [span for span in collector.named("sendMessage") if span.fields["chatlanes.chat"] == 9]
    assert [name for name, _ in call.events] == ["refused with 429", "flood wait"]
    assert call.events[0][1]["chatlanes.retry_after_s"] == 1
    # And the span of the append is linked to each update of its batch
    [batch] = [span for span in collector.named("append") if create.id in span.links]
    assert batch.fields["messaging.batch.message_count"] == len(batch.links)
    # And the log contains the same trace ids
    assert f'"trace_id":"{runs[0].trace}"' in victim.log
    # And no span contains a text or a token
    for secret in (TEXT, SECRET):
        assert secret.encode() not in collector.raw
