"""A bot's markup in the page's chats."""

from typing import Any

import pytest

from chatlanes_sandbox.simulator.calls.markup import marked, read
from chatlanes_sandbox.simulator.calls.params import RefusedError


def pieces(text: str, entities: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """(kind, what it is on), by Telegram's units."""
    units = text.encode("utf-16-le")
    spans = [(one["type"], one["offset"] * 2, (one["offset"] + one["length"]) * 2) for one in entities]
    return sorted((kind, units[start:end].decode("utf-16-le")) for kind, start, end in spans)


@pytest.mark.parametrize(
    ("mode", "raw", "text", "found"),
    [
        (
            "HTML",
            "👍 <b>bold <i>both</i></b> &lt;x&gt;",
            "👍 bold both <x>",
            [("bold", "bold both"), ("italic", "both")],
        ),
        ("HTML", '<a href="https://a.b/?x&amp;y">l</a>', "l", [("text_link", "l")]),
        ("HTML", '<pre><code class="language-py">a&amp;b</code></pre>', "a&b", [("pre", "a&b")]),
        ("HTML", "<blockquote expandable>q</blockquote>", "q", [("expandable_blockquote", "q")]),
        ("MarkdownV2", r"*b _i_* ~s~ 1\.5", "b i s 1.5", [("bold", "b i"), ("italic", "i"), ("strikethrough", "s")]),
        ("MarkdownV2", "__u__ ||p||", "u p", [("spoiler", "p"), ("underline", "u")]),
        ("MarkdownV2", "👍 `a*b` [l](https://a.b)", "👍 a*b l", [("code", "a*b"), ("text_link", "l")]),
        ("MarkdownV2", "```py\nx = '`'\n```", "x = '`'\n", [("pre", "x = '`'\n")]),
        ("MarkdownV2", ">one\n>two\nrest", "one\ntwo\nrest", [("blockquote", "one\ntwo")]),
        ("Markdown", "*b* `c` [l](a.b) [x] 1.5", "b c l [x] 1.5", [("bold", "b"), ("code", "c"), ("text_link", "l")]),
    ],
)
def test_markup_becomes_entities(mode: str, raw: str, text: str, found: list[tuple[str, str]]) -> None:
    made, entities = read(raw, mode)
    assert made == text
    assert pieces(made, entities) == found


@pytest.mark.parametrize(
    ("mode", "raw", "why"),
    [
        ("HTML", "1 < 2", 'Unsupported start tag "" at byte offset 2'),
        ("HTML", "é<script>", 'Unsupported start tag "script" at byte offset 2'),
        ("HTML", "<b>x", 'Can\'t find end tag corresponding to start tag "b"'),
        ("HTML", "<b>x</i>", 'expected "</b>", found "</i>"'),
        ("MarkdownV2", "Done.", "Character '.' is reserved and must be escaped with the preceding '\\'"),
        ("MarkdownV2", "*x", "Can't find end of Bold entity at byte offset 0"),
        ("Markdown", "snake_case", "Can't find end of the entity starting at byte offset 5"),
    ],
)
def test_invalid_markup_is_refused_with_telegrams_message(mode: str, raw: str, why: str) -> None:
    with pytest.raises(RefusedError) as refused:
        read(raw, mode)
    assert str(refused.value).startswith("Bad Request: can't parse entities: ")
    assert why in str(refused.value)


def test_addresses_and_commands_are_marked_but_not_in_code() -> None:
    shown = marked({"caption": "`/no` /yes a@b.org #tag", "parse_mode": "Markdown"}, "caption")
    found = pieces(shown["caption"], shown["caption_entities"])
    assert found == [("bot_command", "/yes"), ("code", "/no"), ("email", "a@b.org"), ("hashtag", "#tag")]
