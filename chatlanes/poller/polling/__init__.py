"""Long polling: the main loop, its sources and sinks, backpressure, and leader election."""

from chatlanes.poller.polling.backpressure import Backpressure, NoBackpressure
from chatlanes.poller.polling.custom_sink import CustomSink, SinkLike
from chatlanes.poller.polling.custom_source import Batches, CustomSource
from chatlanes.poller.polling.lanes_sink import LanesSink
from chatlanes.poller.polling.leader_election import ANSWER_WITHIN_S, LeaderElection, SoleLeader
from chatlanes.poller.polling.loop import Poller, Sink, Source
from chatlanes.poller.polling.multi_bot import poll_all
from chatlanes.poller.polling.pacing import Pace
from chatlanes.poller.polling.telegram_source import TelegramSource

__all__ = [
    "ANSWER_WITHIN_S",
    "Backpressure",
    "Batches",
    "CustomSink",
    "CustomSource",
    "LanesSink",
    "LeaderElection",
    "NoBackpressure",
    "Pace",
    "Poller",
    "Sink",
    "SinkLike",
    "SoleLeader",
    "Source",
    "TelegramSource",
    "poll_all",
]
