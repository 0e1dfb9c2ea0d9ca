"""Injected faults of the simulator."""

import pytest
import requests
from click.testing import CliRunner

from chatlanes_sandbox.simulator import Simulator, SimulatorFailedError, start
from chatlanes_sandbox.simulator.__main__ import simulator as simulator_command
from tests.sandbox.calling import BotClient, text_update, wait_until


def test_a_fault_hits_its_method_as_often_as_it_says(simulator: Simulator, bot: BotClient) -> None:
    simulator.fault(method="getMe", times=2, status=502)
    assert bot("getUpdates").status_code == 200
    assert [bot("getMe").status_code for _ in range(3)] == [502, 502, 200]


def test_a_fault_may_be_of_one_chat(simulator: Simulator, bot: BotClient) -> None:
    simulator.fault(chat_id=7, status=429, retry_after=1)
    calls = [("getMe", {}), *(("sendMessage", {"chat_id": chat, "text": "a"}) for chat in (8, 7, "7"))]
    assert [bot(method, **params).status_code for method, params in calls] == [200, 200, 429, 200]


def test_faults_come_in_the_order_they_were_given(simulator: Simulator, bot: BotClient) -> None:
    simulator.fault(status=500)
    simulator.fault(status=503, description="Bad Gateway")
    assert [bot("getMe").json().get("description") for _ in range(3)] == ["Internal Server Error", "Bad Gateway", None]


def test_without_end_until_the_reset(simulator: Simulator, bot: BotClient) -> None:
    simulator.fault(times=0, status=500)
    assert {bot("getMe").status_code for _ in range(5)} == {500}
    simulator.reset()
    assert bot("getMe").status_code == 200


def test_too_many_requests_say_how_long_to_wait(simulator: Simulator, bot: BotClient) -> None:
    simulator.fault(status=429, retry_after=3)
    response = bot("getMe")
    assert response.headers["Retry-After"] == "3"
    assert response.json() == {
        "ok": False,
        "error_code": 429,
        "description": "Too Many Requests: retry after 3",
        "parameters": {"retry_after": 3},
    }


def test_a_reset_connection(simulator: Simulator, bot: BotClient) -> None:
    simulator.fault(reset=True)
    with pytest.raises(requests.ConnectionError, match="reset by peer"):
        bot("getMe")
    assert bot("getMe").status_code == 200


@pytest.mark.parametrize("takes_effect", [False, True])
def test_an_answer_is_lost_after_or_before_the_call_took_effect(
    simulator: Simulator, bot: BotClient, takes_effect: bool
) -> None:
    simulator.push(text_update(), text_update())
    simulator.fault(method="sendMessage", reset=True, takes_effect=takes_effect)
    simulator.fault(method="getUpdates", status=502, takes_effect=takes_effect)
    with pytest.raises(requests.ConnectionError):
        bot("sendMessage", chat_id=5, text="#1")
    assert bot("getUpdates", offset=2).status_code == 502
    assert [call["ok"] for call in simulator.calls()] == [takes_effect]
    assert simulator.answers() == ({5: [1]} if takes_effect else {})
    assert simulator.stats()["confirmed"] == takes_effect


def test_a_garbage_body(simulator: Simulator, bot: BotClient) -> None:
    simulator.fault(body="<html>Bad Gateway</html>")
    response = bot("getMe")
    assert (response.status_code, response.text) == (200, "<html>Bad Gateway</html>")


def test_a_call_that_hangs_is_answered_later(simulator: Simulator, bot: BotClient) -> None:
    simulator.fault(method="getMe", hang_s=0.5)
    with pytest.raises(requests.ReadTimeout):
        requests.get(f"{simulator.url}/bot{simulator.token}/getMe", timeout=0.1)
    wait_until(lambda: simulator.calls("getMe")[0]["ok"])


def test_a_slow_body_arrives_whole(simulator: Simulator, bot: BotClient) -> None:
    simulator.push(*[text_update()] * 20)
    simulator.fault(method="getUpdates", slow_s=0.1)
    assert len(bot.updates()) == 20


@pytest.mark.parametrize(
    ("path", "body", "sentence"),
    [
        ("faults", {"sttaus": 500}, "sttaus is unknown; the fields are method, "),
        ("faults", 5, "a fault, which is an object, or a list of such"),
        ("faults", [{"status": 500}, "getMe"], "a fault, which is an object, or a list of such"),
        ("faults", {"status": "500"}, "status must be a whole number"),
        ("faults", {"status": 99}, "status must be from 200 to 599"),
        ("faults", {"method": "sendMesage"}, "sendMesage is not a method of the Bot API"),
        ("faults", {"hang_s": "1"}, "hang_s must be a number"),
        ("faults", {"chat_id": [7]}, "chat_id must be a whole number or a name with @"),
        ("faults", {"times": -1}, "times, hang_s, slow_s and retry_after must be at least 0"),
        ("updates", 5, "a list of updates"),
        ("updates", [5], "a list of updates"),
        ("updates", [{"update_id": "5"}], "update_id must be a number"),
        ("stream", {"chats": 0}, "chats must be at least 1"),
        ("stream", {"chats": "3"}, "chats must be a whole number"),
        ("stream", {"rate": 0}, "a stream without end needs a rate"),
        ("stream", {"speed": 5}, "speed is unknown; the fields are chats, rate, "),
        ("webhook", {"jitter_s": "1"}, "jitter_s must be a number"),
        ("webhook", {"jitter": 1}, "jitter is unknown; the fields are jitter_s, "),
    ],
)
def test_an_unknown_control_request_is_refused(simulator: Simulator, path: str, body: object, sentence: str) -> None:
    answer = requests.post(f"{simulator.url}/control/{path}", json=body, timeout=10)
    assert answer.status_code == 400
    assert answer.json()["error"].startswith(sentence)
    assert simulator.stats()["faults"] == 0


def test_a_misspelt_fault_is_an_error_in_the_test(simulator: Simulator) -> None:
    with pytest.raises(SimulatorFailedError, match="sttaus"):
        simulator.fault(sttaus=500)


@pytest.mark.slow
def test_a_port_in_use_is_one_sentence(simulator: Simulator, capfd: pytest.CaptureFixture[str]) -> None:
    port = int(simulator.url.rsplit(":", 1)[1])
    with pytest.raises(SimulatorFailedError, match="ended with code 1"):
        start(port=port)
    why = f"the simulator cannot listen on 127.0.0.1:{port}: Address already in use. Give another --port\n"
    assert capfd.readouterr().err == why


@pytest.mark.parametrize("token", ["abc", "1:", ":a", "1:a b", ""])
def test_a_token_of_another_form_is_one_sentence(token: str) -> None:
    refused = CliRunner().invoke(simulator_command, ["--token", token])
    assert (refused.exit_code, refused.output.splitlines()[-1]) == (
        2,
        "Error: Invalid value for --token: write <digits>:<text>, such as 1:SIMULATED",
    )


@pytest.mark.slow
def test_it_ends_at_once_even_with_a_long_poll_open(quirky_bot: BotClient) -> None:
    answer = quirky_bot.long_poll()
    quirky_bot.simulator.stop()
    assert isinstance(answer.exception(), requests.ConnectionError)
    assert quirky_bot.simulator.process
    assert quirky_bot.simulator.process.returncode == 0


def test_its_front_page_describes_it(simulator: Simulator) -> None:
    assert "/control/stats" in requests.get(simulator.url, timeout=10).text


@pytest.mark.parametrize("first", ["-5", "0", "3000000000"])
def test_a_first_update_id_that_no_poller_takes_is_refused(first: str) -> None:
    refused = CliRunner().invoke(simulator_command, ["--first-update-id", first, "--token", "abc"])
    assert (refused.exit_code, f"{first} is not in the range 1<=x<=" in refused.output) == (2, True)
