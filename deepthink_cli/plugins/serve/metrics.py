"""What a server counts, in the text format of Prometheus (version 0.0.4)."""

from __future__ import annotations

from collections import Counter

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)  # seconds


class Metrics:
    """Requests by status, rows, batches, and the seconds of answers that were labelled; one thread writes."""

    def __init__(self) -> None:
        self.requests, self.rows, self.errors, self.batches = Counter[int](), 0, 0, 0
        self._buckets, self._seconds = Counter[float](), 0.0

    def answered(self, seconds: float) -> None:
        """Count the time from a request's arrival to its labels."""
        self._seconds += seconds
        for bound in (*_BUCKETS, float("inf")):
            self._buckets[bound] += seconds <= bound

    def text(self, waiting: int) -> str:
        """All metrics; `waiting` requests wait for the model."""
        buckets = {f'{{le="{bound:g}"}}': self._buckets[bound] for bound in _BUCKETS}
        total = self._buckets[float("inf")]
        return "".join(
            [
                _metric(
                    "requests_total",
                    "counter",
                    "Requests by HTTP status.",
                    {f'{{status="{status}"}}': count for status, count in sorted(self.requests.items())},
                ),
                _metric("rows_total", "counter", "Rows that were labelled.", {"": self.rows}),
                _metric("row_errors_total", "counter", "Rows that could not be labelled.", {"": self.errors}),
                _metric("batches_total", "counter", "Calls of the model.", {"": self.batches}),
                _metric("waiting_requests", "gauge", "Requests that wait for the model.", {"": waiting}),
                _metric(
                    "request_seconds",
                    "histogram",
                    "Seconds from a request to its labels.",
                    {
                        **{f"_bucket{each}": count for each, count in buckets.items()},
                        '_bucket{le="+Inf"}': total,
                        "_sum": self._seconds,
                        "_count": total,
                    },
                ),
            ]
        )


def _metric(name: str, kind: str, about: str, samples: dict[str, float]) -> str:
    name = f"deepthink_{name}"
    lines = [f"# HELP {name} {about}", f"# TYPE {name} {kind}"]
    return "\n".join([*lines, *(f"{name}{suffix} {value}" for suffix, value in samples.items())]) + "\n"
