"""The report of a chaos run: a table, the shortest excerpt, a picture."""

from xml.etree import ElementTree

from chaos.chart import draw
from chaos.check.checker import check
from chaos.report import complaints, table
from tests.chaos.story import Story


def bad() -> Story:
    story = Story().run(1, 0.0, 1.0, says=(0.5,)).run(2, 1.0, 2.0).run(4, 2.0, 3.0).run(3, 3.0, 4.0)
    return story.run(5, 4.0, 5.0, keys=("chat:8",)).kills(9, 3.5)


def test_table_has_a_column_per_system() -> None:
    evidence = bad().evidence(1, 2, 3, 4, 5, 6)

    rows = [
        [cell.strip() for cell in row.split("|")[1:-1]]
        for row in table([("a", evidence, check(evidence))] * 2).splitlines()
    ]

    assert rows[0] == ["", "a", "a"]
    assert ["faults; updates", "1; 6", "1; 6"] in rows
    assert ["out of order", "1", "1"] in rows


def test_excerpt_shows_only_the_updates_of_the_violation() -> None:
    evidence = bad().evidence(1, 2, 3, 4, 5)

    text = complaints(check(evidence), evidence)

    assert "out of order: chat:7: 3 started at 3.000, after 4 had started" in text
    assert "fault: kill_all prefork" in text
    assert "update 4, run 3: starts" in text
    assert "update 1," not in text


def test_picture_has_a_bar_per_fault() -> None:
    story = bad()

    for evidence in (story.evidence(1, 2, 3, 4, 5), Story().evidence()):
        picture = ElementTree.fromstring(draw(evidence, [(0.0, 5), (1.0, 0)], "<seed 7>"))  # noqa: S314 - our own
        bars = picture.findall(".//{*}title")
        assert len(bars) == len(evidence.faults)


def test_picture_size_does_not_depend_on_the_length() -> None:
    story = Story()
    for second in range(3600):
        story.run(second + 1, second, second + 0.5)

    assert len(draw(story.evidence(), [(s / 2, s % 9) for s in range(7200)], "an hour")) < 200_000
