"""Likely mistakes in the settings: misspelled names, unreadable lines of `.env`, a file name as BOT."""

import sys
from pathlib import Path

import pytest

from chatlanes.settings import SettingsError, load, settings_warnings
from chatlanes.settings.bot_files import bots_in, likely_path
from chatlanes.settings.imports import ImportPathError, import_object
from chatlanes.settings.spelling import CHECKED, misspelled
from chatlanes.settings.table import rows

OURS = [row.name for row in rows().values()]


@pytest.mark.parametrize(
    ("name", "setting"),
    [
        ("QUEUE", "QUEUES"),
        ("LEASE_SECOND", "LEASE_SECONDS"),
        ("MAX_ATTEMPT", "MAX_ATTEMPTS"),
        ("max_attempt", "MAX_ATTEMPTS"),
        ("BOTTOKEN", "BOT_TOKEN"),
        ("BOT_TOKNE", "BOT_TOKEN"),
        ("REDIS_URI", "REDIS_URL"),
        ("LEASE_SECONS", "LEASE_SECONDS"),
        ("ALOWED_UPDATE", "ALLOWED_UPDATES"),
        ("RATE_PER_CHATS", "RATE_PER_CHAT"),
        ("FILTERS", "FILTER"),
    ],
)
def test_a_misspelled_setting_is_named(name: str, setting: str) -> None:
    assert misspelled([name]) == [f"{name} is not a setting; did you mean {setting}?"]


@pytest.mark.parametrize(
    "name",
    [
        *("PATH", "HOME", "HOST", "PORT", "PAST", "LAST", "STAGE", "STATE", "BOTO_CONFIG", "BOTO3", "ROBOT", "FASTAPI"),
        *("REDIS_HOST", "REDIS_PORT", "REDIS_URL_2", "BOT_TOKEN2", "SHOP_BOT_TOKEN", "BOT_NAME", "POOL_TIMEOUT"),
        *("LOG_LEVEL", "LOG_FILE", "WEBHOOK_PATH", "MAX_RETRIES", "CELERY_QUEUES", "DATABASE_URL", "LANG", "FILLER"),
        *("UPDATE_INTERVAL", "SESSION_KEY", "HTTP_TIMEOUT", "RATE_LIMIT", "WEBHOOKS"),
    ],
)
def test_variables_of_others_are_not_reported(name: str) -> None:
    assert misspelled([name]) == []


def test_no_setting_is_taken_for_another() -> None:
    assert misspelled(OURS) == []


def test_a_setting_that_is_set_is_not_suggested() -> None:
    assert misspelled(["REDIS_URI", "REDIS_URL"]) == []


def test_an_unreadable_line_of_env_is_named_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / ".env"
    file.write_text("# ours\nMAX_ATTEMPT=3\n\ngarbage here !\nBOT_TOKEN=1:abc\nword\n")
    assert load({}, file).token == "1:abc"
    assert capsys.readouterr() == ("", "")
    assert settings_warnings({}, file) == [
        f"{file}, line 4 is ignored: it is not NAME=value",
        f"{file}, line 6 is ignored: it is not NAME=value",
        "MAX_ATTEMPT is not a setting; did you mean MAX_ATTEMPTS?",
    ]
    # A process whose parent has said it does not say it again
    assert settings_warnings({CHECKED: "1"}, file) == []


@pytest.mark.parametrize(
    ("text", "likely"),
    [
        ("mybot.py", "mybot:handle"),
        ("./mybot.py", "mybot:handle"),
        ("mybot", "mybot:handle"),
        ("mybot.handle", "mybot:handle"),
        ("examples/echo.py:handle", "examples.echo:handle"),
        ("shop.bot.app", "shop.bot:app"),
        ("my bot", None),
        ("a:b:c", None),
    ],
)
def test_an_import_path_is_suggested(text: str, likely: str | None) -> None:
    assert likely_path(text) == likely


def test_the_suggestion_stands_in_the_error() -> None:
    with pytest.raises(SettingsError) as caught:
        load({"BOT": "mybot"}, None)
    assert str(caught.value).endswith("such as mybot.py; did you mean mybot:handle?")


@pytest.mark.parametrize(
    ("path", "likely"),
    [
        ("mybot:handel", "(did you mean handle?)"),
        ("mybt:handle", "(did you mean mybot:handle?)"),
        ("mybot:nothing_like_it", "that it defines."),
        ("elsewhere:nothing", "correct the name."),
    ],
)
def test_a_misspelled_name_of_the_bot_is_corrected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, likely: str
) -> None:
    (tmp_path / "mybot.py").write_text("def handle(ctx): pass")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "mybot", raising=False)
    with pytest.raises(ImportPathError) as caught:
        import_object("BOT", path)
    assert likely in str(caught.value)
    sys.modules.pop("mybot", None)


@pytest.mark.parametrize(
    ("code", "path"),
    [
        ("def handle(ctx): pass", "mybot:handle"),
        ("async def handle(ctx): pass", "mybot:handle"),
        ("import aiogram\ndp = aiogram.Dispatcher()\nbot = aiogram.Bot('')", "mybot:dp"),
        ("from telegram.ext import Application\napp = Application.builder().token('').build()", "mybot:app"),
        ("from telebot import TeleBot\ntb = TeleBot('')", "mybot:tb"),
        ("from chatlanes.bot import Bot\ndef f(ctx): pass\nbot = Bot(f)", "mybot:bot"),
        ("from aiogram import Bot\nbot = Bot('')", None),
        ("def handle(): pass", None),
        ("def broken(:", None),
    ],
)
def test_a_bot_is_found_without_importing_it(tmp_path: Path, code: str, path: str | None) -> None:
    (tmp_path / "mybot.py").write_text(code)
    assert bots_in(tmp_path) == ([path] if path else [])


def test_a_misspelled_name_is_beside_the_error_that_it_causes() -> None:
    with pytest.raises(SettingsError) as caught:
        load({"BOT_TOKEN": "1:A", "COLECT": "messages", "INTERRUPT": "on"}, env_file=None)
    assert str(caught.value).splitlines() == [
        "INTERRUPT=on: allowed is off, or on or steer if COLLECT is not none",
        "COLECT is not a setting; did you mean COLLECT?",
    ]
