"""Splitting of a text into messages: complete, within the limit, on boundaries, and stable while the text grows."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chatlanes.bot.stream.splitting import LIMIT, TextPiece, split, split_entities, units

#: Characters of one and two UTF-16 units, and all boundaries.
TEXTS = st.text(st.sampled_from("ab. \n!。😀é"), max_size=120)
LIMITS = st.integers(2, 30)


def joined(pieces: list[TextPiece]) -> str:
    return "".join(piece.text for piece in pieces)


@given(TEXTS, LIMITS)
def test_pieces_are_the_text_within_the_limit(text: str, limit: int) -> None:
    pieces = split(text, limit)
    assert all(0 < units(piece.text) <= limit for piece in pieces)
    assert all(piece.text.strip() for piece in pieces)
    rest = text
    for piece in pieces:  # nothing but space is left out
        before, found, rest = rest.partition(piece.text)
        assert found
        assert not before.strip()
    assert not rest.strip()


@given(TEXTS, TEXTS, LIMITS)
def test_a_longer_text_keeps_all_pieces_but_the_last(text: str, more: str, limit: int) -> None:
    kept = split(text, limit)[:-1]
    assert split(text + more, limit)[: len(kept)] == kept


def test_units_are_those_of_utf_16() -> None:
    for text in ("", "abc", "é", "😀", "a😀é\ud83d"):
        assert units(text) == len(text.encode("utf-16-le", "surrogatepass")) // 2


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("one two. three\nfour five\n\nsix seven eight nine", "one two. three\nfour five\n\n"),
        ("one two. three\nfour five six seven", "one two. three\n"),
        ("one two\nthree four. five six seven", "one two\nthree four. "),
        ("one two three four.\nfive six seven eight", "one two three four.\n"),
        ("one two three four. five six seven eight", "one two three four. "),
        ("onetwothreefourfivesixseveneightnine", "onetwothreefourfivesixseveneig"),
        ("😀" * 20, "😀" * 15),
        ("a" + "😀" * 20, "a" + "😀" * 14),
    ],
)
def test_the_best_boundary_of_the_second_half_is_used(text: str, first: str) -> None:
    assert split(text, 30)[0].text == first


def test_a_long_text_has_pieces_of_telegram_s_length() -> None:
    words = " ".join(f"word{number}" for number in range(3000))
    pieces = split(words)
    assert joined(pieces) == words
    assert all(LIMIT - 10 < units(piece.text) <= LIMIT for piece in pieces[:-1])


# -- entities


def entities_of(pieces: list[TextPiece]) -> set[tuple[int, str]]:
    """(unit of the whole text, type) of each unit that an entity covers."""
    covered, start = set(), 0
    for piece in pieces:
        for each in piece.entities or []:
            assert each["offset"] >= 0
            assert each["length"] > 0
            assert each["offset"] + each["length"] <= units(piece.text)
            covered |= {(start + each["offset"] + place, each["type"]) for place in range(each["length"])}
        start += units(piece.text)
    return covered


@st.composite
def formatted(draw: st.DrawFn) -> tuple[str, list[dict[str, Any]]]:
    """A text, and entities that begin and end between characters."""
    text = draw(st.text(st.sampled_from("ab .\n😀"), min_size=1, max_size=80).filter(lambda text: " " * 2 not in text))
    places = [units(text[:index]) for index in range(len(text) + 1)]
    spans = draw(
        st.lists(st.tuples(st.sampled_from(places), st.sampled_from(places), st.sampled_from(["bold", "code"])))
    )
    return text, [{"type": kind, "offset": a, "length": b - a} for a, b, kind in spans if a < b]


@pytest.mark.slow
@settings(max_examples=300)
@given(formatted(), st.integers(4, 40))
def test_entities_cover_the_same_text(given: tuple[str, list[dict[str, Any]]], limit: int) -> None:
    text, entities = given
    pieces = split_entities(text, entities, limit)
    assert all(units(piece.text) <= limit for piece in pieces)
    if joined(pieces) == text:
        assert entities_of(pieces) == entities_of([TextPiece(text, entities)])


def test_a_split_is_not_inside_of_an_entity() -> None:
    text = "some words before a link with a long text and more"
    start = text.index("a link")
    link = {"type": "text_link", "url": "https://a.example", "offset": start, "length": len("a link with a long text")}
    first, second, *_ = split_entities(text, [link], 30)
    assert first == TextPiece("some words before ", [])
    assert second.text.startswith("a link with a long text ")
    assert second.entities == [{**link, "offset": 0}]


def test_an_entity_longer_than_a_message_is_divided() -> None:
    code = {"type": "pre", "language": "python", "offset": 2, "length": 50}
    pieces = split_entities("a " + "x = 1 \n" * 8, [code], 20)
    assert all(
        each["type"] == "pre" and each["language"] == "python" for piece in pieces for each in piece.entities or []
    )
    assert entities_of(pieces) == {(place, "pre") for place in range(2, 52)}
