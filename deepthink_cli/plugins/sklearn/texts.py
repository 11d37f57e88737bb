"""Texts and labels in the forms that scikit-learn's users have: lists, arrays, Series and DataFrames."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from deepthink_cli.data.examples import Text
from deepthink_cli.data.template import text_value
from deepthink_cli.errors import InputError, Problems


def texts_of(inputs: Any, fields: Sequence[str]) -> list[Text]:
    """A text for each row, or a text by name for each of several text `fields` of the template.

    Takes a list, a one-dimensional array or a Series of strings (or of mappings with the fields); a DataFrame with
    columns of these names; or two dimensions, with one column for each field. Raises InputError, naming every row, for
    anything else, for missing or empty texts, and for no rows.
    """
    rows = _rows(inputs, fields)
    if not rows:
        raise InputError("X: found 0 samples, while a minimum of 1 is required; give texts")
    problems, texts = Problems(), list[Text]()
    for number, row in enumerate(rows):
        with problems.collected():
            values = _by_field(row, fields, f"X row {number}")
            texts.append(values[fields[0]] if len(fields) == 1 else values)
    problems.raise_any()
    return texts


def classes_of(labels: Any, texts: Sequence[Text]) -> tuple[Any, list[int]]:
    """The labels, sorted, and the place of every row's label among them.

    Raises ValueError, as scikit-learn does, for labels that are not one for each text or are not classes, and
    InputError for a missing label and for a single class.
    """
    from sklearn.utils import check_consistent_length, column_or_1d
    from sklearn.utils.multiclass import check_classification_targets

    if labels is None:
        raise InputError("DeepThinkingClassifier requires y to be passed, but the target y is None; give labels")
    array, values = column_or_1d(labels, warn=True), given_values(labels)
    for number, label in enumerate(values):
        if _is_missing(label):
            raise InputError(f"y row {number}: the label is {label}, and y must not contain NaN; omit the row")
    kinds = {type(label) for label in values}
    if len(kinds) == 1 and str not in kinds and (array.dtype == object or {*map(type, array.tolist())} != kinds):
        array = np.array(values)  # scikit-learn refuses numbers in an array of objects, and reads Int64 as float
    check_consistent_length(texts, array)
    check_classification_targets(array)
    classes, places = np.unique(array, return_inverse=True)
    if len(classes) < 2:
        raise InputError(f"y: all rows have one class, {classes.tolist()[0]!r}; give rows of another")
    return classes, places.tolist()


def given_values(values: Any) -> list[Any]:
    """The values of a list, array, Series or column as Python's own, before NumPy makes them of one type."""
    array = np.asarray(values, dtype=object).ravel()
    return [value.item() if isinstance(value, np.generic) else value for value in array]


def words_of(classes: Sequence[Any], label_words: Mapping[Any, str] | None) -> tuple[str, ...]:
    """What the model reads in place of each class: a word of `label_words`, or else the class as in a file of rows.

    Raises InputError for classes without a word and for two with the same one.
    """
    names = given_values(classes)
    given = {name: name for name in names} if label_words is None else label_words
    if missing := [name for name in names if name not in given]:
        raise InputError(f"label_words: no word for the label {missing[0]!r}; add it")
    words = [given[name] for name in names]
    stripped = tuple(text_value(word, "label_words", repr(name)) for name, word in zip(names, words, strict=True))
    for number, word in enumerate(stripped):
        if word in stripped[:number]:
            first = names[stripped.index(word)]
            raise InputError(f"labels {first!r} and {names[number]!r} are both read as {word!r}; give label_words")
    return stripped


def _rows(inputs: Any, fields: Sequence[str]) -> list[Any]:
    """A string, a mapping or a sequence of strings for every row."""
    columns = [str(name) for name in getattr(inputs, "columns", ())]
    if all(columns.count(name) == 1 for name in fields):
        by_field = [given_values(inputs[name]) for name in fields]
        return list(zip(*by_field, strict=True))
    array = np.asarray(inputs, dtype=object)
    if array.ndim not in (1, 2):
        raise InputError(f"X: expected a list of texts, found a {type(inputs).__name__}; give one text for each row")
    if array.ndim == 2 and array.shape[1] != len(fields):
        raise InputError(
            f"X has {array.shape[1]} features, but DeepThinkingClassifier is expecting {len(fields)} features as "
            f"input, one for each text field of the template: {', '.join(fields)}"
        )
    return list(array)


def _by_field(row: Any, fields: Sequence[str], where: str) -> dict[str, str]:
    """The text of each field."""
    if isinstance(row, Mapping):
        missing = [name for name in fields if name not in row]
        if missing:
            raise InputError(f"{where}: field {missing[0]!r} is missing; the row has {', '.join(map(str, row))}")
        values = [row[name] for name in fields]
    elif isinstance(row, tuple | np.ndarray):
        values = list(row)
    elif len(fields) > 1:
        raise InputError(f"{where}: the template has the text fields {', '.join(fields)}; give a column for each")
    else:
        values = [row]
    values = [None if _is_missing(value) else value for value in values]
    for name, value in zip(fields, values, strict=True):
        if not isinstance(value, str | None):
            raise InputError(f"{where}: {name!r} is a {type(value).__name__}; give strings, as .astype(str) makes them")
    return {name: text_value(value, where, name) for name, value in zip(fields, values, strict=True)}


def _is_missing(value: Any) -> bool:
    return type(value).__name__ in ("NoneType", "NAType") or (isinstance(value, float) and math.isnan(value))
