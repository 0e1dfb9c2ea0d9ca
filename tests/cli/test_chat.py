"""lanes chat: all there is of one chat."""

from __future__ import annotations

import re

from chatlanes.lanes.protocol.replies import Kind
from tests.cli.conftest import Cli


def test_a_chat_is_shown_with_all_its_messages(cli: Cli) -> None:
    # Given a chat in which an update runs for the second time after a call, two wait, and one was buried
    cli.bury("1:9", "1/chat:7")
    cli.append("1:10", "1/chat:7")
    [(_, fence)] = cli.take()
    cli.store.retry("1:10", fence, delay_ms=-1, problem={"type": "ValueError", "message": "no\nprice"})
    cli.store.sweep(60_000)
    [(_, fence)] = cli.take()
    cli.store.begin("1:10", fence, lease_ms=60_000, position="1", what="sendMessage:abc")
    cli.store.end("1:10", fence, position="1", what="sendMessage:abc", kind=Kind.DONE, outcome=b'{"secret": 1}')
    cli.append("1:11", "1/chat:7")
    cli.append("1:12", "1/chat:77")
    cli.client.set("session:1/chat:7", '{"cart": [3]}', ex=7200)
    # When it is asked for
    text = cli.text("chat", "7")
    # Then it is told who stands in its lane, and what the first one does
    assert "1/chat:7: 2 in the lane\n" in text
    assert "1:10  message, chat 7, update 1:10  runs on east:4711 for" in text
    assert "attempt 2" in text
    assert "1:11  message, chat 7, update 1:11  waiting" in text
    assert "1:12" not in text
    # And its last errors, its calls, its session without what is in it, and what was buried
    assert "ValueError: no price" in text
    assert "  call 1 sendMessage: done\n" in text
    assert "secret" not in text
    assert "session:1/chat:7: 13 bytes, for 2.0 h more\n" in text
    assert "cart" not in text
    assert "1 buried: lanes dead list --chat 7\n" in text
    # Unless it is asked for that
    assert '"cart": [' in cli.text("chat", "7", "--content")


def test_the_reason_of_a_delay_is_shown(cli: Cli) -> None:
    cli.append("1:10", "1/chat:7")
    [(_, fence)] = cli.take()
    cli.store.park("1:10", fence, delay_ms=60_000, kind="Unknown", reason="no worker\nknows bot 1")
    assert re.search(r"delayed 0\.\d s ago: no worker knows bot 1\n", cli.text("chat", "7"))


def test_a_paused_chat_says_so_also_when_it_is_empty(cli: Cli) -> None:
    cli.said("pause", "chat", "1/chat:7")
    assert cli.said("chat", "7")[0].startswith("1/chat:7: 0 in the lane, paused since 20")


def test_a_long_lane_is_cut(cli: Cli) -> None:
    for number in range(25):
        cli.append(f"1:{number}", "1/chat:7")
    assert "and 5 more" in cli.said("chat", "1/chat:7")


def test_nothing_is_a_sentence(cli: Cli) -> None:
    assert cli.said("chat", "7*") == ["7* has no waiting, running or buried updates, and no session"]
    assert cli.code == 0
