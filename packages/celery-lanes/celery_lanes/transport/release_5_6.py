"""The parts that only Celery 5.6 or kombu 5.6 needs. To end their support, delete this file and the two uses of it.

transport.py takes its base classes from here instead of from kombu.transport.redis, so they have the names that they
have there. install.py adds the consumer's step. The versions are checked separately: Celery 5.6 also runs on kombu 5.7.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import celery
import kombu
from celery import bootsteps
from kombu.transport import redis as stock

IS_KOMBU = kombu.VERSION < (5, 7)
IS_CELERY = celery.VERSION < (5, 7)

QoS = stock.QoS
SentinelTransport = stock.SentinelTransport


class MultiChannelPoller(stock.MultiChannelPoller):
    def get(self, callback: Any, timeout: float | None = None) -> Any:
        """For a worker without an event loop. kombu 5.7 calls on_poll_start."""
        self.on_poll_start()
        return super().get(callback, timeout)

    def forget(self, loop: Any, connection: Any) -> None:
        """Stop polling a connection that was closed, as kombu 5.7 does for a worker's event loop."""
        closed = [key for key in self._chan_to_sock if key[1].connection is connection]
        for channel, client, kind in closed:
            del self._chan_to_sock[channel, client, kind]
            for fileno in [fd for fd, polled in self._fd_to_chan.items() if polled == (channel, kind)]:
                del self._fd_to_chan[fileno]
                loop.remove(fileno)

    def _unregister_from_poll(self, fileno: int) -> None:
        self.poller.unregister(fileno)


class Channel(stock.Channel):
    def _get_publish_topics(self, exchange: str, routing_key: str) -> list[str]:
        return [self._get_publish_topic(exchange, routing_key)]

    def _flush_brpop_reauth(self) -> None:
        """kombu 5.6 does not log in again on an open connection."""


class SentinelChannel(Channel, stock.SentinelChannel):
    pass


class Transport(stock.Transport):
    cycle: Any

    def register_with_event_loop(self, connection: Any, loop: Any) -> None:
        super().register_with_event_loop(connection, loop)
        # kombu 5.6 would stop polling every connection when one is closed.
        self.cycle._on_connection_disconnect = partial(self.cycle.forget, loop)
        self.cycle._unregister_from_poll = loop.remove_reader


class KeepAddedQueues(bootsteps.StartStopStep):
    """The consumer's step. After a reconnect, Celery 5.6 would no longer consume from a queue that was cancelled and
    added again by remote control.
    """

    def __init__(self, consumer: Any, **kwargs: Any) -> None:
        stock_add = consumer.add_task_queue

        def add_task_queue(queue: str, *args: Any, **options: Any) -> None:
            stock_add(queue, *args, **options)
            queues = consumer.app.amqp.queues
            queues.select_add(queues[queue])

        consumer.add_task_queue = add_task_queue
        super().__init__(consumer, **kwargs)
