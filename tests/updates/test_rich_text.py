"""The text of rich messages."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatlanes.bot.context import Context
from chatlanes.updates.rich_text import text_of_rich

BREAD = ["We need ", {"type": "bold", "text": ["brown ", {"type": "italic", "text": "bread"}]}, "."]
LOCATION = {"latitude": 1.5, "longitude": 2.5}
ANY_JSON = st.recursive(
    st.none() | st.integers() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["type", "blocks", "text", "items", "cells", "caption", "label", "buttons", "credit", "button"]
            ),
            inner,
            max_size=4,
        )
    ),
)


def paragraph(text: Any) -> dict[str, Any]:
    return {"type": "paragraph", "text": text}


def cell(text: Any) -> dict[str, Any]:
    return {"align": "left", "valign": "top", "text": text}


#: Each with its text.
BLOCKS = [
    (paragraph("Hello"), "Hello"),
    (paragraph(BREAD), "We need brown bread."),
    ({"type": "heading", "size": 1, "text": "Shopping"}, "Shopping"),
    ({"type": "pre", "text": "a = 1\nb = 2", "language": "python"}, "a = 1\nb = 2"),
    ({"type": "divider"}, ""),
    ({"type": "anchor", "name": "top"}, ""),
    ({"type": "mathematical_expression", "expression": "x^2"}, "x^2"),
    (paragraph(["x = ", {"type": "mathematical_expression", "expression": "2"}]), "x = 2"),
    (paragraph([{"type": "custom_emoji", "custom_emoji_id": "1", "alternative_text": "🎉"}, "!"]), "🎉!"),
    (paragraph({"type": "bot_command", "text": "/stop", "bot_command": "/stop"}), "/stop"),
    (paragraph({"type": "button", "button": {"text": "Buy", "callback_data": "b"}}), "Buy"),
    ({"type": "buttons", "buttons": [{"text": "Yes", "callback_data": "y"}, {"text": ["N", "o"]}]}, "Yes No"),
    (
        {
            "type": "list",
            "items": [
                {"label": "1.", "blocks": [paragraph("bread")]},
                {"label": "2.", "blocks": [paragraph("milk"), paragraph("(cold)")]},
            ],
        },
        "1. bread\n2. milk\n(cold)",
    ),
    (
        {"type": "blockquote", "blocks": [paragraph("To be"), paragraph("or not")], "credit": "W."},
        "To be\nor not\nW.",
    ),
    ({"type": "pullquote", "text": "Less is more", "credit": "M."}, "Less is more\nM."),
    ({"type": "details", "summary": "More", "blocks": [paragraph("All of it")]}, "More\nAll of it"),
    (
        {"type": "table", "cells": [[cell("a"), cell(["b", "c"])], [cell("d"), cell(None)]], "caption": "T"},
        "a\tbc\nd\t\nT",
    ),
    (
        {
            "type": "photo",
            "photo": [],
            "caption": {"text": ["A ", {"type": "bold", "text": "cat"}], "credit": "Ann"},
        },
        "A cat\nAnn",
    ),
    (
        {
            "type": "collage",
            "blocks": [{"type": "photo", "photo": [], "caption": {"text": "one"}}],
            "caption": {"text": "all"},
        },
        "one\nall",
    ),
    (
        {"type": "map", "location": LOCATION, "zoom": 13, "width": 9, "height": 9, "caption": {"text": "Here"}},
        "Here",
    ),
    ({"type": "of a newer Bot API", "text": "understood"}, "understood"),
]


@pytest.mark.parametrize(("block", "text"), BLOCKS)
def test_a_block_has_its_text(block: dict[str, Any], text: str) -> None:
    assert text_of_rich({"blocks": [block]}) == text


@pytest.mark.slow
def test_the_blocks_are_as_telegram_sends_them() -> None:
    from aiogram.types import RichMessage

    RichMessage.model_validate({"blocks": [block for block, _ in BLOCKS if "newer" not in block["type"]]})


@given(ANY_JSON)
def test_any_json_has_a_text(value: Any) -> None:
    assert isinstance(text_of_rich(value), str)


def test_the_text_of_the_context_is_that_of_a_rich_message() -> None:
    rich = {"message": {"rich_message": {"blocks": [paragraph("Hello,"), paragraph(BREAD)]}}}
    plain = {"message": {"text": "Please."}}
    assert Context(rich, None).text == "Hello,\nWe need brown bread."
    assert Context([rich, plain], None).texts == ["Hello,\nWe need brown bread.", "Please."]
