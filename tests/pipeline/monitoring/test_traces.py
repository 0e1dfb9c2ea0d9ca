"""An update's trace: from the poller through every run to each Bot API call, in one piece."""

from __future__ import annotations

from tests.pipeline.conftest import MakePipeline
from tests.pipeline.monitoring.collector import Collector
from tests.support.pipeline import BOT_ID, SECRET, message
from tests.support.waiting import until

TEXT = "PRIVATE-words"


def test_a_trace_goes_on_through_the_death_of_a_worker(make_pipeline: MakePipeline, collector: Collector) -> None:
    # Given an update whose first worker is killed after its first call, at a gate, and one that fails before it
    pipeline = make_pipeline(
        LEASE_SECONDS=4,
        RETRY_BACKOFF=0.01,
        LOG_FORMAT="json",
        OTEL_EXPORTER_OTLP_ENDPOINT=collector.address,
        OTEL_BSP_SCHEDULE_DELAY=600_000,  # so that all is sent at the end
    )
    victim = pipeline.worker("prefork", 2, OTEL_BSP_SCHEDULE_DELAY=100)
    pipeline.simulator.fault(method="sendMessage", chat_id=9, status=429, retry_after=1)
    killed, failed, flooded = pipeline.push(
        message(1, 7, do=f"{TEXT} spans:own says:{TEXT} gate:a"),
        message(2, 8, do=f"{TEXT} fails:1 spills:2"),
        message(3, 9, do=TEXT),
    )
    poller = pipeline.poller()
    pipeline.ended(failed, flooded)
    until(lambda: len(collector.named("sendMessage")) == 3)
    victim.kill_all()
    # When another one runs it
    survivor = pipeline.worker("prefork", 1)
    pipeline.open("a")
    pipeline.drained()
    poller.stop()
    survivor.stop()
    # Then both runs are below what the poller began, in one trace
    ids = {update: f"{BOT_ID}:{update}" for update in (killed, failed, flooded)}
    [create] = collector.of_update(ids[killed], "create")
    assert (create.kind, create.parent, create.of[0]) == ("producer", "", "chatlanes-poller")
    assert create.fields["chatlanes.chat"] == 7
    [second] = collector.of_update(ids[killed], "process")  # the first one's died with its process
    calls = [span for span in collector.named("sendMessage") if span.fields["chatlanes.chat"] == 7]
    assert {span.trace for span in (second, *calls)} == {create.trace}
    assert (second.parent, second.kind) == (create.id, "consumer")
    about = {name: second.fields[f"chatlanes.{name}"] for name in ("attempt", "died", "outcome", "bot")}
    assert about == {"attempt": 2, "died": 1, "outcome": "settled", "bot": str(BOT_ID)}
    assert second.fields["chatlanes.fence"] > 0
    # And the call that the first run had made is replayed in the second, in which the bot has a span of its own
    assert [(span.fields["chatlanes.replayed"], span.parent == second.id) for span in calls] == [
        (False, False),
        (True, True),
        (False, True),
    ]
    assert {span.parent for span in collector.named("the bot's own")} >= {second.id}
    # And a failure is told, and the next attempt is beside it
    runs = collector.of_update(ids[failed], "process")
    assert [(run.fields["chatlanes.attempt"], run.fields["chatlanes.outcome"], run.is_error) for run in runs] == [
        (1, "retried", True),
        (2, "retried", True),
        (3, "settled", False),
    ]
    assert len({run.parent for run in runs}) == 1
    assert runs[1].events[0][1]["exception.message"] == "https://example.org/bot<token>/getMe"
    assert runs[0].events[0][1]["exception.message"] == f"attempt 1 of {failed}"
    # And what Telegram refused, and how long that was waited for
    [call] = [span for span in collector.named("sendMessage") if span.fields["chatlanes.chat"] == 9]
    assert [name for name, _ in call.events] == ["refused with 429", "flood wait"]
    assert call.events[0][1]["chatlanes.retry_after_s"] == 1
    # And the batch is linked to each update that it brought
    [batch] = [span for span in collector.named("append") if create.id in span.links]
    assert batch.fields["messaging.batch.message_count"] == len(batch.links)
    # And the log has the same ids
    assert f'"trace_id":"{runs[0].trace}"' in victim.log
    # And nothing holds a text or a token
    for secret in (TEXT, SECRET):
        assert secret.encode() not in collector.raw
