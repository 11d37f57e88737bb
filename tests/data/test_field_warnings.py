"""Demonstrations whose fields look wrong cause a warning that says what to do; ordinary ones do not."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import write_rows

from deepthink_cli.data.examples import read_demonstrations
from deepthink_cli.data.field_warnings import field_warnings

REVIEWS = Path(__file__).parent.parent.parent / "examples" / "reviews" / "demos.jsonl"
TEXTS = ("a fine film", "awful and long", "dull", "great fun for all")
LABELS = ("good", "bad", "bad", "good")


def warned(folder: Path, label_field: str | None = None, **columns: tuple[object, ...]) -> list[str]:
    """The warnings about rows with these columns, the label's last."""
    rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    path = write_rows(folder / "rows.jsonl", rows)
    return field_warnings(read_demonstrations(str(path), label_field=label_field))


def test_ordinary_demonstrations_cause_no_warning(tmp_path: Path) -> None:
    assert field_warnings(read_demonstrations(str(REVIEWS))) == []
    assert warned(tmp_path, text=TEXTS, label=LABELS) == []
    assert warned(tmp_path, text=TEXTS, stars=(5, 1, 1, 5)) == []


def test_a_label_that_never_repeats_may_be_the_wrong_field(tmp_path: Path) -> None:
    (message,) = warned(tmp_path, label=LABELS, title=("a", "b", "c", "d"))
    assert "the field 'title' may not be the label: every label occurs once ('a', 'b', 'c', ...)" in message
    assert "label_field label" in message


def test_labels_that_were_listed_may_occur_once(tmp_path: Path) -> None:
    path = write_rows(
        tmp_path / "r.jsonl", [{"text": f"text {each}", "label": each} for each in ("red", "blue", "green")]
    )
    demonstrations = read_demonstrations(str(path))
    assert len(field_warnings(demonstrations)) == 1
    assert field_warnings(demonstrations, named=True) == []


def test_one_demonstration_of_each_of_two_labels_causes_no_warning(tmp_path: Path) -> None:
    assert warned(tmp_path, text=("good film", "bad film"), label=("yes", "no")) == []


def test_labels_that_are_longer_than_the_text_may_be_the_text(tmp_path: Path) -> None:
    (message,) = warned(tmp_path, label=LABELS, text=(*TEXTS[:3], TEXTS[0]))
    assert "'text' may not be the label: labels are longer than texts (10 and 4 characters on average)" in message
    assert "label_field label" in message


@pytest.mark.parametrize(
    "ids",
    [
        (17, 18, 19, 20),
        ("row-1", "row-2", "row-3", "row-4"),
        tuple(f"{number}23e4567-e89b-12d3-a456-42661417400{number}" for number in range(4)),
    ],
)
def test_an_id_causes_a_warning_as_text_and_as_label(ids: tuple[object, ...], tmp_path: Path) -> None:
    (as_text,) = warned(tmp_path, id=ids, text=TEXTS, label=LABELS)
    assert as_text.startswith("the field 'id' looks like an id (")
    assert as_text.endswith(r"template 'Text: {text}\nLabel: {label}'")
    as_label = warned(tmp_path, text=TEXTS, label=LABELS, id=ids)
    assert any("'id' may not be the label: it looks like an id (" in message for message in as_label)
    assert any("label_field label" in message for message in as_label)


def test_an_id_alone_is_no_text(tmp_path: Path) -> None:
    messages = warned(tmp_path, id=(1, 2, 3, 4), label=LABELS)
    assert "'id' looks like an id (1, 2, 3, ...) and is read as text: name the text with template" in messages[0]


def test_the_template_that_is_proposed_omits_the_id_alone(tmp_path: Path) -> None:
    (message,) = warned(tmp_path, id=(1, 2, 3, 4), text=TEXTS, label=LABELS)
    template = message.split("template '")[1].removesuffix("'").replace("\\n", "\n")
    demonstrations = read_demonstrations(str(tmp_path / "rows.jsonl"), template)
    assert demonstrations.template.fields == ("text", "label")
    assert field_warnings(demonstrations) == []


@pytest.mark.parametrize("other", ["Good", "GOOD", "good  film"])
def test_labels_that_differ_by_case_or_blanks_alone_are_named(other: str, tmp_path: Path) -> None:
    base = "good film" if " " in other else "good"
    (message,) = warned(tmp_path, text=TEXTS, label=(base, "bad", "bad", other))
    assert f"the labels {base!r} and {other!r} differ only by case or blanks" in message


def test_rows_with_candidates_of_their_own_may_have_any_answers(tmp_path: Path) -> None:
    rows = [
        {"question": f"what is {n}?", "candidates": ["x", f"answer {n}"], "answer": f"answer {n}"} for n in range(4)
    ]
    demonstrations = read_demonstrations(str(write_rows(tmp_path / "rows.jsonl", rows)))
    assert field_warnings(demonstrations) == []


def test_a_header_that_is_named_like_a_label_may_be_a_row(tmp_path: Path) -> None:
    for content in (
        "a fine film,good\nawful,bad\ndull,bad\nfun,good\n",
        "good,a film\nbad,awful\nbad,dull\ngood,fun\n",
    ):
        (tmp_path / "rows.csv").write_text(content)
        (message,) = field_warnings(read_demonstrations(str(tmp_path / "rows.csv")), has_header=True)
        assert "the field 'good' is named like one of its values" in message
        assert "no_header" in message
    (tmp_path / "rows.csv").write_text("text,label\ntext,good\ndull,bad\nfun,good\n")
    assert field_warnings(read_demonstrations(str(tmp_path / "rows.csv")), has_header=True) == []
