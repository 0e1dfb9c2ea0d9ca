"""The file that BOTS names: tables, errors and the places of tokens."""

from __future__ import annotations

import re
import traceback
from pathlib import Path

import pytest

from chatlanes.settings import Settings, SettingsError, load
from chatlanes.settings.bots import PER_BOT
from tests.support import ROOT

SHOP, HELP = "111:SHOP-SECRET-abcdefgh", "222:HELP-SECRET-abcdefgh"
TOKENS = {"SHOP_TOKEN": SHOP, "HELP_TOKEN": HELP}
TWO = '[shop]\ntoken_env = "SHOP_TOKEN"\n\n[help]\ntoken_env = "HELP_TOKEN"\n'


def given(directory: Path, toml: str, **env: str) -> Settings:
    file = directory / "bots.toml"
    file.write_text(toml)
    return load({"BOTS": str(file), **env}, env_file=None)


def refused(directory: Path, toml: str, **env: str) -> list[str]:
    """The lines of the error, without the file's directory."""
    with pytest.raises(SettingsError) as caught:
        given(directory, toml, **env)
    told = "".join(traceback.format_exception(caught.value))
    assert "SECRET" not in told
    assert caught.value.__context__ is None  # where error trackers look
    return str(caught.value).replace(f"{directory}/", "").splitlines()


def test_without_the_file_the_one_bot_is_the_settings_themselves() -> None:
    settings = load({"BOT_TOKEN": SHOP}, env_file=None)
    assert settings.served == (settings,)
    assert settings.queue_names[:2] == ["updates.0", "updates.1"]


def test_each_bot_has_the_ordinary_settings_with_its_own_on_top(tmp_path: Path) -> None:
    toml = TWO + 'bot = "helpdesk:bot"\norder_by = "chat+user"\nallowed_updates = ["message", "poll"]\nqueues = 2\n'
    shop, helpdesk = given(
        tmp_path, toml, **TOKENS, QUEUES="3", MAX_PENDING="77", ORDER_BY="topic", BOT="all:handle"
    ).served
    assert (shop.bot_id, shop.token, helpdesk.bot_id, helpdesk.token) == (111, SHOP, 222, HELP)
    assert (shop.bot, shop.order_by, shop.allowed_updates, shop.max_pending) == ("all:handle", "topic", None, 77)
    assert (helpdesk.bot, helpdesk.order_by, helpdesk.max_pending) == ("helpdesk:bot", "chat+user", 77)
    assert helpdesk.allowed_updates == ("message", "poll")
    assert shop.queue_names == ["updates.shop.0", "updates.shop.1", "updates.shop.2"]
    assert helpdesk.queue_names == ["updates.help.0", "updates.help.1"]


def test_an_empty_text_counts_as_unset(tmp_path: Path) -> None:
    [shop] = given(tmp_path, '[shop]\ntoken_env = "SHOP_TOKEN"\nbot = " "\n', **TOKENS, BOT="all:handle").served
    assert shop.bot == "all:handle"


def test_tokens_come_from_files_beside_it_and_from_env_files(tmp_path: Path) -> None:
    (tmp_path / "shop.token").write_text(f"{SHOP}\n")
    (tmp_path / ".env").write_text(f"BOTS={tmp_path}/bots.toml\nHELP_TOKEN={HELP}\n")
    (tmp_path / "bots.toml").write_text('[shop]\ntoken_file = "shop.token"\n[help]\ntoken_env = "HELP_TOKEN"\n')
    assert [bot.token for bot in load({"HELP_TOKEN": " "}, env_file=tmp_path / ".env").served] == [SHOP, HELP]


@pytest.mark.parametrize(
    ("toml", "why"),
    [
        ('[shop]\ntoken_env = "SHOP_TOKEN"\n', "SHOP_TOKEN (token_env) is not set"),
        ('[shop]\ntoken_file = "none"\n', "none (token_file) cannot be read: No such file or directory"),
        ('[shop]\ntoken_file = "."\n', ". (token_file) cannot be read: Is a directory"),
    ],
)
def test_a_missing_token_is_reported_where_it_is_needed(tmp_path: Path, toml: str, why: str) -> None:
    # Given settings that are good enough for Flower
    [shop] = given(tmp_path, toml).served
    assert shop.queue_names[0] == "updates.shop.0"
    # When a process needs the token
    for need in ("token", "bot_id"):
        with pytest.raises(SettingsError) as told:
            getattr(shop, need)
        assert str(told.value) == f"{tmp_path}/bots.toml: [shop] has no token: {why}"


@pytest.mark.parametrize(
    ("toml", "lines"),
    [
        ("", ["bots.toml names no bot: write a table for each, [name] with a token_env or token_file"]),
        ('shop = "x"\n', ["bots.toml: shop is not in a table: write [the bot's name] above it"]),
        ('[shop]\nbot = "a:b"\n', ["bots.toml: [shop] needs one of token_env and token_file: where the token is"]),
        (
            '[shop]\ntoken_env = "A"\ntoken_file = "b"\n',
            ["bots.toml: [shop] needs one of token_env and token_file: where the token is"],
        ),
        (
            f'[shop]\ntoken_env = "{SHOP}"\n',
            [
                "bots.toml: [shop] token_env (its value is not shown): allowed is the name of a variable, "
                "such as SHOP_TOKEN"
            ],
        ),
        (
            '[shop]\ntoken_env = "BAD_TOKEN"\n',
            [
                "bots.toml: [shop] the token, BAD_TOKEN (token_env), is wrong (its value is secret and not shown): "
                "allowed is <digits>:<letters>, as @BotFather gives it"
            ],
        ),
        (
            '[shop]\ntoken_env = "SHOP_TOKEN"\norder_by = "chats"\nqueues = 0\nallowed_updates = [1]\nbot = 7\n',
            [
                "bots.toml: [shop] bot=7: allowed is module:attribute, such as mybot:handle; or a file such as "
                "mybot.py",
                "bots.toml: [shop] order_by=chats: allowed is chat, chat+user, topic, user, bot, or module:function",
                "bots.toml: [shop] queues=0: allowed is a whole number from 1 to 1,024",
                "bots.toml: [shop] allowed_updates=1: allowed is a comma list of kinds of update, such as "
                "message,callback_query",
            ],
        ),
        (
            '[shop]\ntoken_env = "SHOP_TOKEN"\n[again]\ntoken_env = "SHOP_TOKEN"\n',
            ["bots.toml: [shop] and [again] have the token of the same bot"],
        ),
        (
            '["1st"]\ntoken_env = "SHOP_TOKEN"\n',
            ["bots.toml: [1st]: a name begins with a letter, then up to 31 of A-Z a-z 0-9 _ -"],
        ),
        (
            '[[shop]]\ntoken_env = "SHOP_TOKEN"\n',
            ["bots.toml: shop is not in a table: write [the bot's name] above it"],
        ),
        (
            '[shop]\ntoken_env = "BAD_TOKEN"\n[help]\ntoken_env = "HELP_TOKEN"\norder_by = "x"\n',
            [
                "bots.toml: [shop] the token, BAD_TOKEN (token_env), is wrong (its value is secret and not shown): "
                "allowed is <digits>:<letters>, as @BotFather gives it",
                "bots.toml: [help] order_by=x: allowed is chat, chat+user, topic, user, bot, or module:function",
            ],
        ),
    ],
)
def test_an_error_names_file_table_and_key(tmp_path: Path, toml: str, lines: list[str]) -> None:
    assert refused(tmp_path, toml, **TOKENS, BAD_TOKEN="SECRET without digits") == lines


def test_a_bot_that_collects_nothing_cannot_be_interrupted(tmp_path: Path) -> None:
    [line] = refused(tmp_path, '[shop]\ntoken_env = "SHOP_TOKEN"\ninterrupt = "on"\n', **TOKENS)
    assert line == "bots.toml: [shop] interrupt=on: allowed is off, or on or steer if COLLECT is not none"
    # The wrong value may be that of all bots.
    shared = {"COLLECT": "messages", "INTERRUPT": "on"}
    assert refused(tmp_path, '[shop]\ntoken_env = "SHOP_TOKEN"\ncollect = "none"\n', **TOKENS, **shared) == [line]


def test_a_token_in_the_file_itself_is_refused(tmp_path: Path) -> None:
    [line] = refused(tmp_path, f'[shop]\ntoken_env = "SHOP_TOKEN"\ntoken = "{SHOP}"\n', **TOKENS)
    assert line.startswith("bots.toml: [shop] holds a token: move it to the environment or to a file of its own")


def test_a_misspelt_key_is_reported_with_the_valid_ones(tmp_path: Path) -> None:
    [line] = refused(tmp_path, '[shop]\ntoken_env = "SHOP_TOKEN"\norderby = "chat"\n', **TOKENS)
    assert line == f"bots.toml: [shop] does not know orderby: allowed are token_env, token_file, {', '.join(PER_BOT)}"


def test_invalid_toml_is_reported_with_its_place(tmp_path: Path) -> None:
    [line] = refused(tmp_path, "[shop\n")
    assert re.fullmatch(r"bots.toml is not TOML: .*line 1, column 6\)", line)


def test_a_bot_token_without_a_table_is_reported(tmp_path: Path) -> None:
    alone = "333:ALONE-SECRET-abcdefgh"
    [line] = refused(tmp_path, TWO, **TOKENS, BOT_TOKEN=alone)
    assert (
        line
        == 'BOT_TOKEN is set, and its bot is not in bots.toml: unset it, or add a table with token_env = "BOT_TOKEN"'
    )
    # And with such a table it is one of them
    bots = given(tmp_path, TWO + '[old]\ntoken_env = "BOT_TOKEN"\n', **TOKENS, BOT_TOKEN=alone).served
    assert [bot.bot_id for bot in bots] == [111, 222, 333]


def test_no_repr_shows_a_token(tmp_path: Path) -> None:
    settings = given(tmp_path, TWO, **TOKENS)
    assert "SECRET" not in repr(settings) + repr(settings.served)


def test_every_key_of_a_table_is_a_setting() -> None:
    assert set(PER_BOT) <= set(Settings.model_fields)


def test_the_documentation_has_every_key() -> None:
    line = next(line for line in (ROOT / "docs/many_bots.md").read_text().splitlines() if "of its own: `" in line)
    assert re.findall(r"`(\w+)`", line) == list(PER_BOT)


def test_the_example_is_valid(tmp_path: Path) -> None:
    settings = load({"BOTS": str(ROOT / "examples/bots.toml"), **TOKENS}, env_file=None)
    assert [bot.bot_name for bot in settings.served] == ["shop", "helpdesk"]
    assert settings.served[0].token == SHOP
