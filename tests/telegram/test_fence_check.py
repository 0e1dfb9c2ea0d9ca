"""The last check of the fence, right before a call is sent."""

import ssl

import pytest
import trustme

from celery_lanes import LeaseLost
from chatlanes.telegram.client import BotApi, prepare
from tests.support.http_server import TOKEN

CALL = prepare("sendMessage", {"chat_id": 7, "text": "hi"})


def test_check_is_after_connecting_and_before_sending(web, api):
    seen = []
    api.send(CALL, before_send=lambda: seen.append(len(web.asked)))

    assert seen
    assert set(seen) == {0}
    assert len(web.asked) == 1


def test_failed_check_sends_nothing(web, api):
    def over() -> None:
        raise LeaseLost("over")

    api.send(CALL)  # opens a connection
    with pytest.raises(LeaseLost):
        api.send(CALL, before_send=over)
    assert len(web.asked) == 1

    # And the client still works.
    api.send(CALL)
    assert len(web.asked) == 2


def test_check_with_tls(web, monkeypatch, tmp_path):
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    web.http.socket = context.wrap_socket(web.http.socket, server_side=True)
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "ca.pem"))
    seen = []

    api = BotApi(web.url.replace("http://", "https://"), TOKEN)
    assert api.send(CALL, before_send=lambda: seen.append(len(web.asked))) is True
    api.close()

    assert seen
    assert set(seen) == {0}
