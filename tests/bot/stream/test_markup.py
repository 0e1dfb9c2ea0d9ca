"""Splitting of texts in a parse mode, checked with the simulator's parsers."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chatlanes.bot.stream.splitting import split_markup, units
from chatlanes_sandbox.simulator.calls.markup import marked


def shown(text: str, parse_mode: str) -> list[tuple[str, frozenset[str]]]:
    """Each character but space, with the kinds of formatting that it has."""
    message: dict[str, Any] = marked({"text": text, "parse_mode": parse_mode}, "text")
    encoded = message["text"].encode("utf-16-le")
    kinds: list[set[str]] = [set() for _ in range(len(encoded) // 2)]
    for each in message.get("entities", []):
        for place in range(each["offset"], each["offset"] + each["length"]):
            kinds[place].add(each["type"] + each.get("url", "") + each.get("language", ""))
    found, place = [], 0
    for character in message["text"]:
        if not character.isspace():
            found.append((character, frozenset(kinds[place])))
        place += units(character)
    return found


def check(text: str, parse_mode: str, limit: int) -> None:
    pieces = split_markup(text, parse_mode, limit)
    assert all(units(piece.text) <= limit and shown(piece.text, parse_mode) for piece in pieces)
    assert [each for piece in pieces for each in shown(piece.text, parse_mode)] == shown(text, parse_mode)


WORDS = st.lists(st.sampled_from(["one", "two", "three.", "four\n", "5 &lt; 6", "😀"]), min_size=1, max_size=8).map(
    " ".join
)


def html_of(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    tags = st.sampled_from(
        [
            ("<b>", "</b>"),
            ("<i>", "</i>"),
            ("<code>", "</code>"),
            ('<pre><code class="language-python">', "</code></pre>"),
            ('<a href="https://a.example">', "</a>"),
            ("<blockquote>", "</blockquote>"),
            ("", " "),
        ]
    )
    return st.lists(st.tuples(tags, inner), min_size=1, max_size=3).map(
        lambda parts: " ".join(begin + text + end for (begin, end), text in parts)
    )


@pytest.mark.slow
@settings(max_examples=200)
@given(st.recursive(WORDS, html_of, max_leaves=5), st.integers(150, 220))
def test_html_is_formatted_as_before(text: str, limit: int) -> None:
    check(text, "HTML", limit)


def test_html_is_closed_and_opened_again() -> None:
    first, second = split_markup("<b>" + "word " * 10 + "<i>" + "more " * 10 + "</i></b>", "HTML", 80)
    assert first.text.endswith("</i></b>")
    assert second.text.startswith("<b><i>")
    assert (first.parse_mode, first.entities) == ("HTML", None)


MARKDOWN_WORDS = st.lists(
    st.sampled_from(["one", "two", r"three\.", "four\n", r"5 \* 6", "😀", "[a link](https://a.example/b_c)"]),
    min_size=1,
    max_size=8,
).map(" ".join)


@pytest.mark.slow
@settings(max_examples=200)
@given(
    st.lists(
        st.tuples(st.sampled_from(["", "*", "_", "__", "~", "*_", "||"]), MARKDOWN_WORDS), min_size=1, max_size=12
    ),
    st.integers(120, 200),
)
def test_markdown_v2_is_formatted_as_before(parts: list[tuple[str, str]], limit: int) -> None:
    check(
        " ".join(mark + text.strip() + mark[::-1] for mark, text in parts),
        "MarkdownV2",
        limit,
    )


@pytest.mark.parametrize("limit", range(40, 90))
def test_code_in_markdown_v2_is_code_in_every_message(limit: int) -> None:
    check("Text\n```python\n" + "x = a_b * 2\n" * 20 + "```\nand `more * code` here\\.", "MarkdownV2", limit)


@pytest.mark.parametrize("limit", range(40, 90))
def test_a_quote_goes_on_in_the_next_message(limit: int) -> None:
    check("Said:\n>" + "a long line that is quoted " * 6 + "\n>and another one\nNot quoted", "MarkdownV2", limit)


@pytest.mark.parametrize("limit", range(40, 90))
def test_old_markdown_is_formatted_as_before(limit: int) -> None:
    check("*bold words here* and " * 5 + "[a link](https://a.example) _" + "slanted " * 10 + "_ end", "Markdown", limit)


@pytest.mark.parametrize(
    "text", ["<b>no end " + "word " * 30, "</i> " * 40, "<" * 200, "`" * 199, "*_" * 80, "[a](" * 50]
)
@pytest.mark.parametrize("parse_mode", ["HTML", "MarkdownV2", "Markdown", "Other"])
def test_invalid_markup_is_split_too(text: str, parse_mode: str) -> None:
    pieces = split_markup(text, parse_mode, 60)
    assert all(0 < units(piece.text) <= 60 for piece in pieces)


def test_a_text_that_fits_is_not_changed() -> None:
    assert [piece.text for piece in split_markup("<b>short", "HTML")] == ["<b>short"]
