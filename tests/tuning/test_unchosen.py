"""What `tune` keeps where its rows decide nothing: a correction without labels if plain labels have a bias."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from conftest import Models, write_rows
from helpers.said import Captured, rows_of

from deepthink_cli.artifact.format import read_header
from deepthink_cli.cli.main import run
from deepthink_cli.tuning.nested import Excess, excess, unchosen
from deepthink_cli.tuning.options import Grid, TuneOptions

WORDS = ("warm", "wise", "kind", "cold", "flat", "long", "blue", "tall", "thin")
LABELS = ("mood", "size", "tone")
ROWS = [{"review": f"a {word} film", "topic": LABELS[place % 3]} for place, word in enumerate(WORDS)]


@pytest.mark.parametrize(
    ("given", "true", "found"),
    [
        ("aaaa", "aabb", Excess("a", 4, 2)),
        ("aaab", "aabb", None),
        ("a" * 9, "aaaaabbbb", Excess("a", 9, 5)),  # a third of the rows and more
        ("a" * 16, "a" * 12 + "bbbb", None),
        ("aaaaab", "aabbcc", Excess("a", 5, 2)),
        ("aaabbb", "aabbcc", None),
        ("bbaaaaaa", "aaaaaabb", None),
        ("abbbb", "aaabb", Excess("b", 4, 2)),
    ],
)
def test_a_label_is_in_excess_if_it_is_given_to_twice_as_many_rows_as_have_it_or_too_often_to_a_third(
    given: str, true: str, found: Excess | None
) -> None:
    assert excess(list(given), list(true)) == found


@pytest.mark.parametrize(
    ("calibrations", "kept"),
    [
        (("none", "contextual", "domain", "batch"), "contextual"),
        (("none", "domain", "pmi"), "domain"),
        (("none", "batch"), "none"),
    ],
)
def test_what_needs_no_choice_is_a_correction_without_labels_at_t_1(calibrations: tuple[str, ...], kept: str) -> None:
    settings = Grid(TuneOptions.checked(iterations=3).methods, calibrations).settings
    right = [5] * len(settings)
    setting = settings[unchosen(settings, Excess("a", 4, 2), right)]
    assert (setting.calibration, setting.method.iterations) == (kept, 1)
    assert unchosen(settings, None, right) == 0


@pytest.mark.parametrize(("contextual", "domain", "kept"), [(4, 5, "domain"), (4, 4, "none"), (6, 7, "contextual")])
def test_a_correction_that_labels_fewer_rows_correctly_is_not_kept(contextual: int, domain: int, kept: str) -> None:
    settings = Grid(TuneOptions.checked().methods, ("none", "contextual", "domain")).settings
    assert settings[unchosen(settings, Excess("a", 4, 2), [5, contextual, domain])].calibration == kept


@pytest.fixture
def words(models: Models, tmp_path: Path) -> list[str]:
    """Tunes a random model, which gives one label whatever the input is."""
    rows = write_rows(tmp_path / "rows.jsonl", list(ROWS))
    return ["tune", str(rows), "-m", str(models("qwen3")), "-T", "1", "--folds", "3", "--technique", "deep-thinking"]


def test_tune_keeps_a_correction_where_plain_in_context_learning_gives_one_label(
    words: list[str], tmp_path: Path, capsys: Captured
) -> None:
    path, plain, again = (tmp_path / f"{name}.safetensors" for name in ("mem", "plain", "again"))
    assert run([*words, "--calibrate", "domain", "--details", "-o", str(path)]) == 0
    out, err = capsys.readouterr()
    tuned = read_header(path).metadata.tuned
    assert f"domain {tuned.accuracy:.1%}" in out  # of that correction, by cross-validation
    kept = "verdict: plain in-context learning (T = 1) is kept: these 9 rows show nothing better"
    (verdict,) = [n for n, line in enumerate(out.splitlines()) if line.startswith(kept)]
    assert out.splitlines()[verdict + 1].endswith(" have it: domain, which needs no labels, corrects it")
    assert f"next: deepthink predict {path} INPUTS\n" in err
    assert run(["calibrate", str(path), "--calibrate", "none", "-q", "-o", str(plain)]) == 0
    assert run(["calibrate", str(plain), "--calibrate", "domain", "-q", "-o", str(again)]) == 0
    assert again.read_bytes() == path.read_bytes()  # the correction alone gives the same

    def largest(memory: Path) -> int:
        return max(Counter(row["label"] for row in rows_of(capsys, "predict", memory, words[1], "-q")).values())

    assert largest(path) < largest(plain)
