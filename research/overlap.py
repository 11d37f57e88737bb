"""How many test rows of the sentiment tasks are among the rows of each other, by letters and digits alone.

    python -m research.overlap --data-dir DIR

Spaces, case, brackets and punctuation are left out: the data sets write the same sentences differently.
"""

from __future__ import annotations

import argparse
import json
import re
import unicodedata
from itertools import permutations
from pathlib import Path

from deepthink_cli.data.examples import Query
from deepthink_cli.io.atomic import replacing
from deepthink_cli.tasks.catalogue import find_task
from deepthink_cli.tasks.sources import Source
from deepthink_cli.tasks.splits import evaluation_set, training_rows

from .packing import TABLES

FILE = "overlap.jsonl"
SENTIMENT = ("sst2", "sst5", "mr")
BRACKETS = re.compile("-[lr]rb-", re.IGNORECASE)


def plain(text: str) -> str:
    """The letters and digits of a text, in lower case and without accents."""
    decomposed = unicodedata.normalize("NFKD", BRACKETS.sub("", text).lower())
    return re.sub("[^a-z0-9]", "", decomposed)


def sentences(rows: list[Query]) -> set[str]:
    """The different sentences of rows."""
    return {plain(str(row.text)) for row in rows}


def main() -> None:
    """Count, and write the counts beside the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path)
    source, test, every = Source(parser.parse_args().data_dir), dict[str, set[str]](), dict[str, set[str]]()
    for name in SENTIMENT:
        task = find_task(name)
        evaluated = evaluation_set(task, "official", source)
        test[name] = sentences(list(evaluated))
        every[name] = test[name] | sentences(training_rows(task, task.demonstrations, evaluated)[0])
    found = [
        {"test": one, "among": other, "sentences": len(test[one]), "shared": len(test[one] & every[other])}
        for one, other in permutations(SENTIMENT, 2)
    ]
    with replacing(TABLES / FILE) as path:
        path.write_text("".join(json.dumps(line) + "\n" for line in found), encoding="utf-8")
    print(*found, sep="\n")


if __name__ == "__main__":
    main()
