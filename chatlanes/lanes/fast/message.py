"""Replaces the constructor of kombu's Message for lane messages, whose fields the transport has already unpacked."""

from __future__ import annotations

from typing import Any

from kombu.transport import virtual

from chatlanes.lanes.protocol.envelope import LANE
from chatlanes.lanes.transport.transport import LanesChannel, LanesSentinelChannel


class Message(virtual.Message):
    """Like kombu's, without looking up each field and decoding the body."""

    def __init__(self, payload: dict[str, Any], channel: Any = None, **kwargs: Any) -> None:
        headers, properties = payload.get("headers") or {}, payload["properties"]
        is_ours = LANE in headers and properties.get("body_encoding") == "utf-8"
        if not is_ours or headers.get("compression") or kwargs:
            super().__init__(payload, channel, **kwargs)
            return
        self._raw, self.channel = payload, channel
        self.body = payload["body"].encode()
        self.content_type, self.content_encoding = payload["content-type"], payload["content-encoding"]
        self.headers, self.properties = headers, properties
        self.delivery_tag, self.delivery_info = properties["delivery_tag"], properties["delivery_info"]
        self.errors: list[Any] = []
        self.accept = self._decoded_cache = None
        self._state = "RECEIVED"


def apply(_worker: Any) -> None:
    LanesChannel.Message = LanesSentinelChannel.Message = Message
