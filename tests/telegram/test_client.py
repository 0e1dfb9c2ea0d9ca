"""The Bot API client against a real HTTP server: requests, parsed answers, and no leak of the token."""

import io
import logging
import os
import pickle
import re
import socket
import ssl
import subprocess
import sys
import traceback
from concurrent.futures import ThreadPoolExecutor
from email import message_from_bytes
from email.policy import HTTP
from threading import Barrier, Event

import pytest
import trustme

from chatlanes.logs.redaction import without_token
from chatlanes.telegram import client, errors
from chatlanes.telegram.client import BotApi, prepare
from chatlanes.telegram.http_client import HttpClient, HttpResponse
from tests.support import ROOT
from tests.support.http_server import TOKEN, Answer


def form(asked) -> dict[str, tuple[str | None, bytes]]:
    """Name → file name and content of a multipart form."""
    head = f"Content-Type: {asked.headers['Content-Type']}\n\n".encode()
    message = message_from_bytes(head + asked.body, policy=HTTP)
    parts = [part for part in message.walk() if not part.is_multipart()]
    return {
        part.get_param("name", header="Content-Disposition"): (part.get_filename(), part.get_payload(decode=True))
        for part in parts
    }


def test_plain_parameters_are_sent_as_json(web, api):
    web.answer = Answer({"ok": True, "result": {"message_id": 5}})
    keyboard = {"inline_keyboard": [[{"text": "é", "callback_data": "a"}]]}
    assert api.call(
        "sendMessage", chat_id=7, text="hi 👋", reply_markup=keyboard, entities=(), protect_content=None
    ) == {"message_id": 5}
    [asked] = web.asked
    assert asked.path == f"/bot{TOKEN}/sendMessage"
    assert asked.headers["Content-Type"] == "application/json"
    assert asked.json == {"chat_id": 7, "text": "hi 👋", "reply_markup": keyboard, "entities": []}


def test_a_closed_client_connects_again(web):
    http = HttpClient(web.url, connect_timeout_s=5, read_timeout_s=5)
    http.ask("GET", "/", HttpResponse.whole)
    http.close()
    assert http.ask("GET", "/", HttpResponse.whole)[0] == 200
    http.close()


def test_call_without_parameters_or_with_one_named_method(web, api):
    assert api.call("getMe") is True
    api.call("someMethod", method="x", self=1)
    assert [asked.json for asked in web.asked] == [{}, {"method": "x", "self": 1}]


def test_files_are_uploaded(web, api, tmp_path):
    (tmp_path / "cät.png").write_bytes(b"path")
    stream = io.BytesIO(b"stream")
    stream.name = "/somewhere/cat.gif"
    api.call(
        "sendPhoto",
        chat_id=7,
        protect_content=True,
        caption="é",
        photo=tmp_path / "cät.png",
        thumbnail=b"bytes",
        other=stream,
        more=io.StringIO("text"),
        reply_markup={"remove_keyboard": True},
    )
    assert form(web.asked[0]) == {
        "chat_id": (None, b"7"),
        "protect_content": (None, b"true"),
        "caption": (None, "é".encode()),
        "reply_markup": (None, b'{"remove_keyboard":true}'),
        "photo": ("cät.png", b"path"),
        "thumbnail": ("thumbnail", b"bytes"),
        "other": ("cat.gif", b"stream"),
        "more": ("more", b"text"),
    }


@pytest.mark.slow
def test_a_large_file_is_sent_in_pieces(web, tmp_path):
    """The memory of the sending process does not grow by the size of the file."""
    size = 64 << 20
    with (tmp_path / "film.mp4").open("wb") as file:
        file.truncate(size)
    program = """
import resource, sys
from pathlib import Path
from chatlanes.telegram.client import BotApi
api = BotApi(sys.argv[1], sys.argv[2])
api.call("getMe")
api.call("sendDocument", document=b"small")
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
api.call("sendDocument", chat_id=7, document=Path(sys.argv[3]))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    arguments = [sys.executable, "-c", program, web.url, TOKEN, str(tmp_path / "film.mp4")]
    done = subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, check=True)
    assert int(done.stdout) << 10 < size // 4
    assert len(form(web.asked[-1])["document"][1]) == size
    assert int(web.asked[-1].headers["Content-Length"]) == len(web.asked[-1].body)


def test_a_missing_file_is_reported_before_sending(web, api, tmp_path):
    with pytest.raises(FileNotFoundError):
        api.call("sendPhoto", chat_id=7, photo=tmp_path / "none.png")
    assert web.asked == []


def test_files_inside_a_parameter_are_attached(web, api, tmp_path):
    (tmp_path / "cat.png").write_bytes(b"path")
    album = [{"type": "photo", "media": tmp_path / "cat.png"}, {"type": "photo", "media": b"bytes"}]
    api.call("sendMediaGroup", chat_id=7, media=album)
    sent = form(web.asked[0])
    assert sent["media"] == (
        None,
        b'[{"type":"photo","media":"attach://file0"},{"type":"photo","media":"attach://file1"}]',
    )
    assert (sent["file0"], sent["file1"]) == (("cat.png", b"path"), ("file1", b"bytes"))


def test_invalid_calls_are_refused_before_sending(web, api):
    with pytest.raises(TypeError, match="not JSON serializable"):
        api.call("sendMessage", text=object())
    with pytest.raises(ValueError, match="not JSON compliant"):
        api.call("sendLocation", latitude=float("nan"))
    for method in ("", "../getMe", "getMe?x", "getMé"):
        with pytest.raises(ValueError, match="is not a method of the Bot API"):
            api.call(method)
    assert web.asked == []


def test_half_an_emoji_is_echoed(web, api):
    web.answer = Answer(rb'{"ok": true, "result": "\ud83d"}')
    assert api.call("sendMessage", text="\ud83d") == "\ud83d"
    assert web.asked[0].body == rb'{"text":"\ud83d"}'


def refused(api, **params) -> errors.BotApiError:
    with pytest.raises(errors.BotApiError) as caught:
        api.call("sendMessage", **params)
    return caught.value


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (400, errors.BadRequest),
        (401, errors.Unauthorized),
        (403, errors.Forbidden),
        (404, errors.NotFound),
        (409, errors.Conflict),
        (413, errors.BadRequest),
        (418, errors.BotApiError),
        (429, errors.TooManyRequests),
        (500, errors.ServerError),
        (502, errors.ServerError),
    ],
)
def test_errors_are_classified_by_code(web, api, code, kind):
    web.answer = Answer({"ok": False, "error_code": code, "description": "Bad Request: chat not found"}, code)
    error = refused(api, chat_id=7)
    assert type(error) is kind
    assert str(error) == "sendMessage to chat 7: Bad Request: chat not found"
    assert (error.method, error.chat, error.description, error.code) == (
        "sendMessage",
        7,
        "Bad Request: chat not found",
        code,
    )
    assert error.uncertain is (code >= 500)


@pytest.mark.parametrize(
    ("parameters", "wait"),
    [
        ({"retry_after": 17}, 17.0),
        ({"retry_after": 1.5}, 1.5),
        ({"retry_after": "x"}, 1.0),
        ({}, 1.0),
        (None, 1.0),
        ({"retry_after": 10**18}, 86_400.0),
        ({"retry_after": 1e300}, 86_400.0),
        ({"retry_after": -1}, 1.0),
    ],
)
def test_429_has_the_wait_in_seconds(web, api, parameters, wait):
    web.answer = Answer({"ok": False, "error_code": 429, "description": "x", "parameters": parameters}, 429)
    assert refused(api).retry_after == wait


@pytest.mark.parametrize("wish", ["9" * 401, "1e999"])
def test_endless_429_wait_is_limited_to_a_day(web, api, wish):
    web.answer = Answer(b'{"ok":false,"error_code":429,"parameters":{"retry_after":%s}}' % wish.encode(), 429)
    assert refused(api).retry_after == 86_400.0


def test_migrated_group_is_named(web, api):
    parameters = {"migrate_to_chat_id": -1001}
    web.answer = Answer({"ok": False, "error_code": 400, "description": "x", "parameters": parameters}, 400)
    error = refused(api, chat_id=-1)
    assert isinstance(error, errors.ChatMigrated)
    assert error.migrate_to_chat_id == -1001


@pytest.mark.parametrize("body", [b"<html>", b"", b"[]", b'{"result": 1}', b"[" * 100_000, b"\xff"])
@pytest.mark.parametrize(("status", "kind"), [(200, errors.ServerError), (502, errors.ServerError)])
def test_answer_that_is_not_from_a_bot_api_is_a_server_error(web, api, body, status, kind):
    web.answer = Answer(body, status)
    error = refused(api)
    assert type(error) is kind
    assert re.search(f"^sendMessage: {status} .*, not the answer of a Bot API", str(error))


def test_429_of_a_proxy_counts_and_403_does_not(web, api):
    web.answer = Answer(b"slow down", 429)
    assert isinstance(refused(api), errors.TooManyRequests)
    web.answer = Answer(b"no", 403)
    assert isinstance(refused(api), errors.ServerError)


def test_errors_survive_pickling():
    parameters = {"migrate_to_chat_id": -2, "retry_after": 9}
    made = [errors.refusal("m", 7, code, "d", parameters) for code in (400, 401, 403, 404, 409, 418, 429, 500)]
    for error in [*made, errors.NetworkError("m", 7, "d", uncertain=False)]:
        copy = pickle.loads(pickle.dumps(error))  # noqa: S301  our own
        assert (type(copy), vars(copy), str(copy)) == (type(error), vars(error), str(error))


def test_refused_connection_is_not_uncertain():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    error = refused(BotApi(f"http://127.0.0.1:{port}", TOKEN))
    assert (type(error), error.uncertain) == (errors.NetworkError, False)
    assert str(error) == "sendMessage: no answer (Connection refused)"


def test_unknown_host_is_not_uncertain():
    assert refused(BotApi("http://nowhere.invalid", TOKEN)).uncertain is False


def test_late_answer_is_uncertain(web):
    done = Event()
    web.answering = lambda asked: done.wait(30) and None
    api = BotApi(web.url, TOKEN, read_timeout_s=0.05)
    error = refused(api)
    done.set()
    api.close()
    assert (type(error), error.uncertain, error.description) == (errors.NetworkError, True, "no answer in time")


def test_connection_closed_without_an_answer_is_uncertain(web, api):
    web.answering = lambda asked: None
    error = refused(api)
    assert (type(error), error.uncertain) == (errors.NetworkError, True)


def test_handled_error_does_not_affect_the_next_one(web, api):
    # A bot may call from inside an except block: the new error must not be classified by the handled one.
    web.answering = lambda asked: None
    try:
        BotApi("http://nowhere.invalid", TOKEN).call("getMe")
    except errors.NetworkError:
        error = refused(api)
    assert error.uncertain is True


def test_certificates_are_checked(web, monkeypatch, tmp_path):
    ca = trustme.CA()
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ca.issue_cert("127.0.0.1").configure_cert(tls)
    web.http.socket = tls.wrap_socket(web.http.socket, server_side=True, do_handshake_on_connect=False)
    url = web.url.replace("http:", "https:")
    api = BotApi(url, TOKEN)
    assert "certificate verify failed" in str(refused(api))
    assert web.asked == []
    ca.cert_pem.write_to_path(tmp_path / "ca.pem")
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "ca.pem"))
    trusting = BotApi(url, TOKEN)
    assert trusting.call("getMe") is True
    trusting.close()


TROUBLES = {
    "refused": Answer({"ok": False, "error_code": 400, "description": f"what is /bot{TOKEN}/x or {TOKEN}?"}, 400),
    "garbage": Answer(b"<html>", 502),
    "redirected": Answer(b"", 302, {"Location": f"http://127.0.0.1:9/bot{TOKEN}/x"}),
    "closed": None,
}


@pytest.mark.parametrize("trouble", [*TROUBLES, "unreachable", "unknown", "malformed"])
def test_token_does_not_leak(web, caplog, trouble):
    caplog.set_level(logging.DEBUG)
    web.answering = lambda asked: TROUBLES[trouble]
    urls = {
        "unreachable": "http://127.0.0.1:9",
        "unknown": "http://nowhere.invalid",
        "malformed": "http://" + "a" * 70 + ".é",
    }
    api = BotApi(urls.get(trouble, web.url), TOKEN)
    error = refused(api, chat_id=7)
    api.close()
    report = "".join(traceback.format_exception(error)) + repr(error) + str(vars(error)) + repr(api) + str(error.args)
    secret = TOKEN.partition(":")[2]
    assert secret not in report
    assert error.__context__ is None  # error trackers look there
    assert error.__cause__ is None
    assert caplog.records or trouble == "malformed"  # urllib3 has logged
    assert secret not in caplog.text
    assert all(secret not in record.getMessage() for record in caplog.records)


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        ("POST /bot12:AA-_bb/getMe HTTP/1.1", "POST /bot<token>/getMe HTTP/1.1"),
        ("https://x/bot12%3AAAbb?x", "https://x/bot<token>?x"),
        ("(url='/bot1:TEST')", "(url='/bot<token>')"),
        ("the token 12:AAbb itself", "the token <token> itself"),
        ("/bottom/12:AAbc", "/bottom/12:AAbc"),
    ],
)
def test_tokens_are_removed_from_urls_and_texts(text, hidden):
    assert without_token(text, "12:AAbb") == hidden


def test_proxy_is_not_used_for_this_machine(web, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    api = BotApi(web.url, TOKEN)
    assert api.call("getMe") is True
    api.close()


def test_proxy_is_used_for_other_machines(web, monkeypatch):
    monkeypatch.setenv("http_proxy", web.url)
    api = BotApi("http://bot-api.invalid", TOKEN)
    assert api.call("getMe") is True
    api.close()
    assert web.asked[0].path == f"http://bot-api.invalid/bot{TOKEN}/getMe"


def test_calls_share_a_connection(web, api):
    api.call("getMe")
    api.call("getMe")
    api.close()
    api.close()
    api.call("getMe")
    connections = [asked.connection for asked in web.asked]
    assert connections[0] == connections[1] != connections[2]


def test_threads_call_concurrently(web, api):
    together = Barrier(16)
    web.answering = lambda asked: together.wait(30) is not None and Answer({"ok": True, "result": asked.json["n"]})
    with ThreadPoolExecutor(16) as pool:
        assert list(pool.map(lambda n: api.call("x", n=n), range(16))) == list(range(16))


def run(code: str, url: str) -> str:
    env = {**os.environ, "PYTHONPATH": str(ROOT), "URL": url, "TOKEN": TOKEN}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_greenlets_call_concurrently(web):
    together = Barrier(16)
    web.answering = lambda asked: together.wait(30) is not None and Answer({"ok": True, "result": asked.json["n"]})
    code = """
from gevent import monkey
monkey.patch_all()
import os
from gevent.pool import Pool
from chatlanes.telegram.client import BotApi, prepare
api = BotApi(os.environ["URL"], os.environ["TOKEN"])
print(Pool(16).map(lambda n: api.call("x", n=n), range(16)))
"""
    assert run(code, web.url) == f"{list(range(16))}\n"


@pytest.mark.slow
def test_forked_child_opens_its_own_connection(web):
    code = """
import os
from chatlanes.telegram.client import BotApi, prepare
api = BotApi(os.environ["URL"], os.environ["TOKEN"])
api.call("x", who="parent")
if (child := os.fork()) == 0:
    api.call("x", who="child")
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
api.call("x", who="parent")
"""
    run(code, web.url)
    who = [(asked.json["who"], asked.connection) for asked in web.asked]
    assert [name for name, _ in who] == ["parent", "child", "parent"]
    assert who[0][1] == who[2][1] != who[1][1]


# -- repeated calls


def failing_first(web, times: int, failure: Answer | None) -> None:
    left = iter([failure] * times)
    web.answering = lambda asked: next(left, Answer())


@pytest.mark.parametrize("failure", [None, Answer(b"<html>", 502), Answer({"ok": False, "error_code": 500}, 500)])
def test_reading_calls_are_repeated(web, api, failure):
    failing_first(web, 3, failure)
    assert api.call("getMe") is True
    assert len(web.asked) == 4


def test_repeats_are_limited(web, api):
    failing_first(web, 5, None)
    with pytest.raises(errors.NetworkError):
        api.call("getMe")
    assert len(web.asked) == 4


@pytest.mark.parametrize("method", ["sendMessage", "getUpdates"])
def test_call_that_may_have_taken_effect_is_not_repeated(web, api, method):
    failing_first(web, 1, Answer(b"<html>", 502))
    with pytest.raises(errors.ServerError):
        api.call(method)
    assert len(web.asked) == 1


def test_refusal_is_not_repeated(web, api):
    failing_first(web, 1, Answer({"ok": False, "error_code": 429, "parameters": {"retry_after": 1}}, 429))
    with pytest.raises(errors.TooManyRequests):
        api.call("getMe")
    assert len(web.asked) == 1


def test_unsent_call_is_repeated_with_its_file(web, tmp_path):
    api = BotApi("http://127.0.0.1:1", TOKEN)
    # The server starts before the first repeat.
    with (tmp_path / "a").open("wb+") as stream:
        stream.write(b"content")
        stream.seek(0)
        call = prepare("sendDocument", {"document": stream})
    start_server = lambda _: vars(api).update(_url=web.url, _process=None)  # noqa: E731
    assert client.repeated(lambda: api.send(call), reads=False, wait=start_server) is True
    assert form(web.asked[0])["document"] == ("a", b"content")
    api.close()


def test_slow_failure_is_not_repeated(web, api, monkeypatch):
    monkeypatch.setattr(client, "WITHIN_S", -1)
    failing_first(web, 1, None)
    with pytest.raises(errors.NetworkError):
        api.call("getMe")
    assert len(web.asked) == 1


@pytest.mark.parametrize(
    ("code", "description", "kind"),
    [
        (400, "Bad Request: message is not modified: …", errors.NotModified),
        (403, "Forbidden: bot was blocked by the user", errors.BlockedByUser),
        (403, "Forbidden: user is deactivated", errors.BlockedByUser),
        (403, "Forbidden: bot was kicked from the group chat", errors.Forbidden),
        (400, "Bad Request: bot was blocked by the user", errors.BadRequest),
    ],
)
def test_errors_are_classified_by_description(web, api, code, description, kind):
    web.answer = Answer({"ok": False, "error_code": code, "description": description}, code)
    assert type(refused(api)) is kind
