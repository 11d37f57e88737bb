"""Rivals: classifiers that plugins train on the labelled rows of `deepthink tune`, and judge by the same folds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from deepthink_cli.evaluation.metrics import wilson
from deepthink_cli.options import Options
from deepthink_cli.registry import Registry, instance_of


@dataclass(frozen=True)
class Rival:
    """A classifier, the number of `rows` held-out rows that it labels correctly, and the seconds of all folds.

    `asked` says that the user named it.
    """

    name: str
    right: int
    rows: int
    seconds: float
    asked: bool = False

    @property
    def accuracy(self) -> float:
        """The share of rows that it labels correctly."""
        return self.right / self.rows

    def as_json(self) -> dict[str, Any]:
        """The result as JSON values."""
        ci95 = wilson(self.accuracy, self.rows)
        return {"name": self.name, "accuracy": self.accuracy, "ci95": ci95, "seconds": self.seconds}


@dataclass(frozen=True)
class Rivals:
    """Classifiers that are judged together.

    `judge` is a function, or the place of one (`module:function`), of the `TunePlan`, the engine, the kind's own
    `options`, the cache and the receiver of events.
    """

    judge: Callable[..., Iterable[Rival]] | str
    options: type[Options]
    summary: str
    source: str

    def own(self, given: Mapping[str, Any]) -> Any:
        """The own options among all `given` ones; raises InputError for wrong values."""
        return self.options.checked(**{name: given[name] for name in self.options.model_fields if name in given})


RIVALS: Registry[Rivals] = Registry("rivals", {}, instance_of(Rivals))
