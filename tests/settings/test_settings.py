"""The settings: sources, errors, and the documentation generated from the class."""

import os
import re
import subprocess
import sys
import traceback
from pathlib import Path

import pytest
from pydantic import ValidationError

from chatlanes.settings import Settings, SettingsError, load
from chatlanes.settings.table import GROUPS, env_example, markdown, page, rows
from tests.support import ROOT

TOKEN = "123456:AAbbCCddEEffGGhhIIjjKKllMMnnOOpp"

#: Scripts of users depend on these.
DEFAULTS = {
    "BOT_TOKEN": None,
    "BOT_API_URL": "https://api.telegram.org",
    "BOT_API_FILES": None,
    "BOT": "chatlanes.demo.echo:handle",
    "BOT_ARGS": "",
    "SCHEDULES": None,
    "BOTS": None,
    "BOTS_KEY": None,
    "REDIS_URL": "redis://127.0.0.1:6379/0",
    "REDIS_CA": None,
    "SENTINEL_MASTER": None,
    "DURABLE_REPLICAS": 0,
    "ORDER_BY": "chat",
    "QUEUES": 8,
    "COLLECT": "none",
    "COLLECT_QUIET": 0.7,
    "COLLECT_MAX_WAIT": 5.0,
    "COLLECT_MAX": 20,
    "INTERRUPT": "off",
    "CONTROL": "/stop,/cancel",
    "ALLOWED_UPDATES": None,
    "FILTER": None,
    "POLL_TIMEOUT": 50,
    "POLL_RETRY_MAX": 30.0,
    "POLL_GIVE_UP_AFTER": None,
    "MAX_PENDING": 10_000,
    "USER_RATE": None,
    "USER_RATE_BY": "user",
    "USER_RATE_OVER": "drop",
    "MAX_AGE": None,
    "MAX_AGE_ACTION": "skip",
    "LEASE_SECONDS": 15.0,
    "STALE": "run",
    "TIMER_LATE": "run",
    "TIMER_LATE_AFTER": 3600.0,
    "SESSION_TTL": None,
    "UPDATE_TIMEOUT": None,
    "MAX_ATTEMPTS": 5,
    "RETRY_BACKOFF": 1.0,
    "UNCERTAIN_CALL": "repeat",
    "FLOOD_WAIT": 5.0,
    "RATE_PER_BOT": None,
    "RATE_PER_CHAT": None,
    "RATE_PER_GROUP": None,
    "BROADCAST_RATE": 25.0,
    "STREAM_FIRST": 30,
    "TYPING": "off",
    "WEBHOOK_URL": None,
    "WEBHOOK_SECRET": None,
    "WEBHOOK_HOST": "127.0.0.1",
    "WEBHOOK_PORT": 8080,
    "WEBHOOK_REORDER": 100,
    "WEBHOOK_TRUSTED_PROXIES": ("127.0.0.1/32", "::1/128"),
    "WEBHOOK_NETWORKS": None,
    "FAST": "1",
    "LOG_FORMAT": "text",
}


def given(**env: str) -> Settings:
    return load(env=env, env_file=None)


def refused(**env: str) -> str:
    with pytest.raises(SettingsError) as caught:
        given(**env)
    return str(caught.value)


def test_nothing_set_gives_the_defaults():
    settings = given()
    assert {name: getattr(settings, name.lower()) for name in DEFAULTS} == DEFAULTS
    assert len(DEFAULTS) == len(Settings.model_fields)


def test_empty_and_blank_count_as_unset():
    assert given(**dict.fromkeys(DEFAULTS, "")) == given(**dict.fromkeys(DEFAULTS, "  ")) == given()


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("BOT_API_URL", "http://127.0.0.1:8081/", "http://127.0.0.1:8081"),
        ("BOT", "shop.bot:app.handle", "shop.bot:app.handle"),
        ("REDIS_URL", "rediss://user:p%40ss@[::1]:6380/3", "rediss://user:p%40ss@[::1]:6380/3"),
        ("REDIS_URL", "redis://cache", "redis://cache"),
        ("BOT", "./shop/my bot.py", "./shop/my bot.py"),
        ("BOT_ARGS", "--name 'a b'", "--name 'a b'"),
        ("ORDER_BY", "chat+user", "chat+user"),
        ("ORDER_BY", "shop.order:keys", "shop.order:keys"),
        ("QUEUES", " 1024 ", 1024),
        ("ALLOWED_UPDATES", "message", ("message",)),
        ("ALLOWED_UPDATES", "message, poll,,message,some_new_kind", ("message", "poll", "some_new_kind")),
        ("POLL_TIMEOUT", "0", 0),
        ("LEASE_SECONDS", "1.5", 1.5),
        ("STALE", "skip", "skip"),
        ("SESSION_TTL", "86400", 86_400.0),
        ("UPDATE_TIMEOUT", "30", 30.0),
        ("RETRY_BACKOFF", "0", 0.0),
        ("UNCERTAIN_CALL", "skip", "skip"),
        ("REDIS_CA", __file__, Path(__file__)),
        ("WEBHOOK_URL", "https://bot.example.org/hook", "https://bot.example.org/hook"),
        ("WEBHOOK_TRUSTED_PROXIES", "10.0.0.1, 10.1.0.0/16,10.0.0.1", ("10.0.0.1/32", "10.1.0.0/16")),
        ("WEBHOOK_NETWORKS", "telegram,::1", ("149.154.160.0/20", "91.108.4.0/22", "::1/128")),
    ],
)
def test_right_values_are_taken(name, text, value):
    assert getattr(given(**{name: text}), name.lower()) == value


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("BOT_API_URL", "api.telegram.org"),
        ("BOT_API_URL", "ftp://api.telegram.org"),
        ("BOT_API_URL", "https://"),
        ("BOT_API_URL", "https://a b"),
        ("BOT_API_URL", "https://a:99999"),
        ("BOT_API_URL", "https://a?x=1"),
        ("BOT", "examples.echo"),
        ("BOT", "examples/echo.py:handle"),
        ("BOT", "examples.echo:"),
        ("BOT", "a:b:c"),
        ("BOT_ARGS", "--name 'a"),
        ("REDIS_URL", "localhost:6379"),
        ("REDIS_URL", "memcached://localhost"),
        ("REDIS_URL", "redis://localhost/main"),
        ("REDIS_URL", "redis://localhost:99999"),
        ("REDIS_URL", "redis://a;redis://b"),
        ("REDIS_URL", "rediscluster://a"),
        ("REDIS_CA", "/no/such/file.pem"),
        ("ORDER_BY", "chats"),
        ("ORDER_BY", "user+chat"),
        ("ORDER_BY", "shop:"),
        ("QUEUES", "0"),
        ("QUEUES", "1025"),
        ("QUEUES", "eight"),
        ("QUEUES", "8.5"),
        ("ALLOWED_UPDATES", "message,Poll"),
        ("ALLOWED_UPDATES", "message poll"),
        ("ALLOWED_UPDATES", '["message"]'),
        ("ALLOWED_UPDATES", ","),
        ("POLL_TIMEOUT", "51"),
        ("POLL_TIMEOUT", "-1"),
        ("MAX_PENDING", "0"),
        ("LEASE_SECONDS", "0.9"),
        ("LEASE_SECONDS", "inf"),
        ("LEASE_SECONDS", "nan"),
        ("STALE", "drop"),
        ("SESSION_TTL", "0"),
        ("UPDATE_TIMEOUT", "0"),
        ("MAX_ATTEMPTS", "0"),
        ("RETRY_BACKOFF", "-1"),
        ("RETRY_BACKOFF", "inf"),
        ("UNCERTAIN_CALL", "maybe"),
        ("WEBHOOK_URL", "bot.example.org"),
        ("WEBHOOK_PORT", "0"),
        ("WEBHOOK_TRUSTED_PROXIES", "nginx"),
        ("WEBHOOK_NETWORKS", "10.0.0.1/8"),
        ("WEBHOOK_NETWORKS", ","),
    ],
)
def test_a_wrong_value_is_named_with_the_allowed_ones(name, text):
    said, _, _ = refused(**{name: text}).partition("; did you mean")
    assert said == f"{name}={text}: allowed is {rows()[name.lower()].allowed}"


def test_a_cluster_is_refused_by_its_name():
    assert "Redis Cluster" in refused(REDIS_URL="redis+cluster://127.0.0.1:7000")


def test_all_wrong_values_are_named_at_once():
    lines = refused(QUEUES="0", POLL_TIMEOUT="x", REDIS_URL="sentinel://a:26379", BOT_TOKEN="x").splitlines()
    assert sorted(re.split("[= ]", line)[0] for line in lines) == [
        "BOT_TOKEN",
        "POLL_TIMEOUT",
        "QUEUES",
        "SENTINEL_MASTER",
    ]


def test_interrupt_needs_collect():
    assert refused(INTERRUPT="on") == "INTERRUPT=on: allowed is off, or on or steer if COLLECT is not none"
    assert given(INTERRUPT="on", COLLECT="albums").interrupt == "on"
    assert given(INTERRUPT="off").interrupt == "off"
    # An invalid COLLECT is the only error.
    assert refused(INTERRUPT="on", COLLECT="album") == (
        "COLLECT=album: allowed is none, albums, messages, or module:function"
    )


def test_sentinel_needs_its_master():
    url = "sentinel://:pw@a:26379;sentinel://:pw@b:26379/0"
    assert refused(REDIS_URL=url).startswith("SENTINEL_MASTER is not set: allowed is")
    assert given(REDIS_URL=url, SENTINEL_MASTER="main").sentinel_master == "main"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("BOT_TOKEN", "HUNTER2"),
        ("BOT_TOKEN", "12 3:HUNTER2"),
        ("BOTS_KEY", "HUNTER2"),
        ("BOTS_KEY", "HUNTER2" * 6 + "x=,HUNTER2"),
        ("WEBHOOK_SECRET", "HUNTER2 with blanks"),
        ("WEBHOOK_SECRET", "HUNTER2" * 40),
        ("REDIS_URL", "http://:HUNTER2@host:1/0"),
        ("REDIS_URL", "redis//:HUNTER2@host"),
        ("REDIS_URL", "redis://:HUNTER2"),
        ("REDIS_URL", "redis://host:HUNTER2"),
        ("REDIS_URL", "redis://user:HUN/TER2HUNTER2@host:1/x"),
        ("REDIS_URL", "http://host/0?password=HUNTER2"),
        ("REDIS_URL", "sentinel://:HUNTER2@a:1;redis://:HUNTER2@b:2"),
        ("BOT_API_URL", "https://api.telegram.org/bot123456:HUNTER2HUNTER2"),
        ("WEBHOOK_URL", "ftp://me:HUNTER2@example.org"),
    ],
)
def test_a_secret_is_in_no_error(name, text):
    with pytest.raises(SettingsError) as caught:
        given(**{name: text})
    assert str(caught.value).startswith(name)
    assert "HUNTER2" not in "".join(traceback.format_exception(caught.value)) + repr(caught.value)
    assert caught.value.__context__ is None  # where error trackers look


def test_a_secret_is_in_no_repr():
    settings = given(BOT_TOKEN=TOKEN, REDIS_URL="redis://:HUNTER2@host/0", WEBHOOK_SECRET="HUNTER2")
    assert not re.search(f"HUNTER2|{TOKEN[7:]}", repr(settings) + str(settings))


def test_the_bot_id_is_in_the_token():
    assert given(BOT_TOKEN=TOKEN).bot_id == 123456
    with pytest.raises(SettingsError, match="BOT_TOKEN is not set"):
        _ = given().bot_id


def test_queue_names():
    assert given(QUEUES="3").queue_names == ["updates.0", "updates.1", "updates.2"]
    assert given().express_queue == "updates.express"


def test_settings_cannot_change():
    with pytest.raises(ValidationError, match="frozen"):
        given().queues = 9  # type: ignore[misc]


def test_the_environment_wins_over_the_file_unless_it_is_empty(tmp_path):
    file = tmp_path / ".env"
    file.write_text("QUEUES=3\nPOLL_TIMEOUT=7\nSOMETHING_ELSE=1\nMAX_ATTEMPTS=\n")
    settings = load(env={"QUEUES": "4", "POLL_TIMEOUT": "", "OTHER": "x"}, env_file=file)
    assert (settings.queues, settings.poll_timeout, settings.max_attempts) == (4, 7, 5)


def test_an_unreadable_file_is_an_error(tmp_path):
    file = tmp_path / ".env"
    file.write_bytes(b"QUEUES=\xff\xfe")
    with pytest.raises(SettingsError, match=r"\.env cannot be read: it is not UTF-8 text"):
        load(env={}, env_file=file)


def test_an_env_file_that_is_a_directory_is_an_error(tmp_path):
    """Docker makes one when it mounts a missing file. Ignored, it would start the bot with default settings."""
    (tmp_path / ".env").mkdir()
    with pytest.raises(SettingsError, match=r"\.env is a directory: remove it and write a file"):
        load(env={}, env_file=tmp_path / ".env")


def test_an_env_file_that_is_a_broken_link_is_an_error(tmp_path):
    (tmp_path / ".env").symlink_to("secrets.env")
    with pytest.raises(SettingsError, match=r"\.env is a link to a missing file"):
        load(env={}, env_file=tmp_path / ".env")


def test_the_process_environment_and_its_env_file_are_read(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".env").write_text("MAX_ATTEMPTS=2\nQUEUES=2")
    monkeypatch.setenv("QUEUES", "7")
    assert (load().queues, load().max_attempts) == (7, 2)


@pytest.mark.slow
def test_building_and_importing_read_nothing(monkeypatch, tmp_path):
    monkeypatch.setenv("QUEUES", "not a number")
    assert Settings().queues == 8
    (tmp_path / ".env").write_text("QUEUES=wrong")
    imports = [
        sys.executable,
        "-c",
        "from chatlanes import settings; import chatlanes.settings.table; print(settings.Settings().queues)",
    ]
    done = subprocess.run(imports, cwd=tmp_path, env=os.environ, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("8\n", "")


def test_the_documentation_is_the_class():
    assert [row.name for row in rows().values()] == list(DEFAULTS)
    assert all(row.meaning and row.allowed for row in rows().values())
    assert {row.name for row in rows().values() if row.secret} == {"BOT_TOKEN", "BOTS_KEY", "WEBHOOK_SECRET"}
    assert (ROOT / ".env.example").read_text() == env_example(), "chatlanes settings env > .env.example"
    assert (ROOT / "docs" / "settings.md").read_text() == page(), "chatlanes settings page > docs/settings.md"
    assert set(GROUPS) <= set(rows())


def test_the_example_sets_every_name_to_its_default(tmp_path):
    file = tmp_path / ".env"
    file.write_text(re.sub(r"^#(?=[A-Z_]+=)", "", env_example(), flags=re.MULTILINE))
    assert set(re.findall(r"^([A-Z_]+)=", file.read_text(), re.MULTILINE)) == set(DEFAULTS)
    assert load(env={}, env_file=file) == given()


@pytest.mark.slow
@pytest.mark.parametrize(("asked", "text"), [([], markdown), (["page"], page), (["env"], env_example)])
def test_python_m_settings_prints_it(asked, text):
    done = subprocess.run(
        [sys.executable, "-m", "chatlanes.settings", *asked], cwd=ROOT, capture_output=True, text=True
    )
    assert (done.stdout, done.returncode) == (text(), 0)
