"""The `--limit` that a row of a run belongs to; a row that only chooses T and eta belongs to that of its test rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from deepthink_cli.report.arms import Arm
from deepthink_cli.runs.results import Result


class RowLimits:
    """The limits of the test rows among results, by arm and task; None is all rows."""

    def __init__(self, rows: Iterable[Result]) -> None:
        self.sizes: dict[tuple[Arm, str], dict[int | None, set[int | None]]] = defaultdict(dict)
        for row in rows:
            if row.setting.part == "test":
                # Unless --dev-size says otherwise, there are as many dev rows as test rows.
                sizes = {row.setting.limit, row.n, row.n + sum(row.skipped.values())}
                self.sizes[_place(row)].setdefault(row.setting.limit, set()).update(sizes)

    def of(self, row: Result) -> tuple[int | None, ...]:
        """The limits that a row belongs to: one for a test row; several for dev rows that were scored once for all."""
        if row.setting.part == "test":
            return (row.setting.limit,)
        limits = self.sizes.get(_place(row), {})
        same_size = tuple(limit for limit, sizes in limits.items() if row.setting.limit in sizes)
        return same_size or tuple(limits) or (None,)

    @property
    def are_several(self) -> bool:
        """Whether any arm has test rows of several limits for one task."""
        return any(len(limits) > 1 for limits in self.sizes.values())


def _place(row: Result) -> tuple[Arm, str]:
    return Arm.of(row.setting), row.setting.task
