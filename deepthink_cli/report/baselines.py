"""The baseline of a result: the result at T = 1 of the same demonstrations, on the inputs that both have scored."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import fmean

from deepthink_cli.experiments.results import Result, Setting
from deepthink_cli.report.arms import READING, is_rival, without_step
from deepthink_cli.report.significance import Discordant, discordant
from deepthink_cli.techniques.registry import find_recorded


class Baselines:
    """The baselines among rows: all rows of a folder, also if only some of them are shown.

    The baseline of Deep-Thinking, and of techniques that change the labels, is their own T = 1. The baseline of other
    techniques is plain in-context learning with the same demonstrations. Fields that affect only further readings, such
    as eta, do not distinguish baselines.
    """

    def __init__(self, rows: Iterable[Result]) -> None:
        self._rows: dict[Setting, list[Result]] = defaultdict(list)
        for row in rows:
            if row.setting.iteration == 1 and not is_rival(row.setting.technique):
                self._rows[_compared_with(row.setting)].append(row)

    def of(self, row: Result) -> Result | None:
        """The baseline of a row; None if the rows have none with the same demonstrations and inputs.

        Of several, the first with the row's own positions and update rule.
        """
        ours, others = row.setting, self._rows.get(_compared_with(row.setting), ())

        def distance(each: Result) -> list[bool]:
            return [getattr(each.setting, name) != getattr(ours, name) for name in READING]

        return min((each for each in others if _agree(row, each)), key=distance, default=None)


@dataclass(frozen=True)
class Comparison:
    """A result and its baseline, or None."""

    result: Result
    baseline: Result | None

    @cached_property
    def answers(self) -> tuple[list[bool], list[bool]] | None:
        """Whether the baseline and the result are right, for every input that both have; None without a baseline."""
        if self.baseline is None:
            return None
        baseline, result = on_common_inputs([self.baseline, self.result])
        return baseline, result

    @property
    def plain(self) -> float | None:
        """The accuracy of the baseline."""
        if self.answers is None or self.baseline is None:
            return None
        return _share(self.answers[0], self.baseline)

    @property
    def thinking(self) -> float:
        """The accuracy of the result."""
        return self.result.accuracy if self.answers is None else _share(self.answers[1], self.result)

    @property
    def discordant(self) -> Discordant | None:
        """The inputs that only one of the two gets right."""
        return None if self.answers is None else discordant(*self.answers)


def mean_plain(comparisons: Sequence[Comparison]) -> float | None:
    """The accuracy of the baselines, the mean over tasks; None if one is missing."""
    known = [each.plain for each in comparisons if each.plain is not None]
    return fmean(known) if len(known) == len(comparisons) else None


def on_common_inputs(results: Sequence[Result]) -> list[list[bool]]:
    """Whether each result on the same rows is right, for every input that all of them have."""
    if len({tuple(each.unscored) for each in results}) == 1:
        return [each.was_right() for each in results]
    left_out = {place for each in results for place in each.unscored}
    return [[right for place, right in _placed(each) if place not in left_out] for each in results]


def _placed(row: Result) -> Iterable[tuple[int, bool]]:
    unscored = set(row.unscored)
    return zip((place for place in range(row.n + len(unscored)) if place not in unscored), row.was_right(), strict=True)


def _share(answers: Sequence[bool], whole: Result) -> float:
    return whole.accuracy if len(answers) == whole.n else sum(answers) / len(answers)


def _compared_with(setting: Setting) -> Setting:
    """The setting without the fields that may differ between a row and its baseline."""
    return replace(
        without_step(setting.without_digests),
        technique=None if is_rival(setting.technique) else setting.technique,
        iteration=1,
        positions="",
    )


def _agree(row: Result, baseline: Result) -> bool:
    """Whether two rows have the same demonstrations, inputs, labelled rows and weights."""
    technique, digests = row.setting.technique, ("rows_sha256", "labelled_sha256", "weights_sha256")
    if any(getattr(row.setting, name) != getattr(baseline.setting, name) for name in digests):
        return False
    if not is_rival(technique):
        return row.demonstrations_sha256 == baseline.demonstrations_sha256
    found = find_recorded(technique)
    if row.plain_sha256 is None and found is not None and found.copies > 1:  # rows of Table 1 have none
        return min(row.shots_used, row.setting.shots) == baseline.shots_used
    return (row.plain_sha256 or row.demonstrations_sha256) == baseline.demonstrations_sha256
