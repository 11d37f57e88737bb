"""What a server reads and answers, as pydantic models, and their description as OpenAPI."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, RootModel
from pydantic.json_schema import models_json_schema


class InputRow(RootModel[dict[str, JsonValue]]):
    """A row: the text fields of the memory's template, its own candidates if it has any, and any other fields."""


class InputRows(RootModel[list[InputRow]]):
    """Rows, which are scored together, without other requests' rows."""


class Correction(BaseModel):
    """An answer corrected by a calibration; `texts` or `rows` is the number that its bias was estimated from."""

    label: str
    probability: float = Field(ge=0, le=1)
    scores: dict[str, float]
    bias: dict[str, float]
    texts: int | None = None
    rows: int | None = None


class OutputRow(BaseModel):
    """A row as `deepthink predict` writes it, or, with `on_error=skip`, why it could not be labelled."""

    model_config = ConfigDict(extra="allow")  # fields that the options of scoring add to a row

    index: int = Field(ge=0, description="Place of the row in the request, from 0.")
    iteration: int | None = Field(None, ge=1, description="With several iterations, the one that answers.")
    label: str | None = None
    probability: float | None = Field(None, ge=0, le=1, description="The label's share among the candidates.")
    scores: dict[str, float] | None = Field(None, description="Log-probability of each candidate, in nats.")
    calibrated: dict[str, Correction] | None = None
    input: dict[str, JsonValue] | None = None
    error: str | None = None


class OutputRowList(RootModel[list[OutputRow]]):
    """The answers, in the order of the rows; with several iterations, an answer by each, row by row."""


class Mistake(BaseModel):
    """The refusal of a request: a message, and the number of the wrong row, from 0, if any."""

    message: str
    index: int | None = None


class Mistakes(BaseModel):
    """All reasons why a request was refused."""

    errors: list[Mistake]


class Health(BaseModel):
    """The served memory, by its digest, and its way of labelling."""

    status: Literal["ok", "loading"]
    version: str
    memory: str = Field(description="SHA-256 of the memory, as `deepthink inspect` shows it.")
    model: str
    iterations: list[int]
    calibrate: list[str]
    scoring: dict[str, JsonValue] = Field(description="The options of scoring that do not have their defaults.")
    max_rows: int
    waiting: int


_REFUSED = {
    400: "The body is not JSON, or neither an object nor an array of objects",
    408: "The body did not arrive in time",
    413: "The body is too large, or has too many rows",
    415: "The body is not declared as application/json",
    422: "Some rows cannot be labelled; each is named",
    500: "The model failed",
    503: "The model is being loaded, or too many requests wait; try again after the seconds in Retry-After",
}


def openapi(example: dict[str, str], token: bool) -> dict[str, Any]:
    """The description of all requests (OpenAPI 3.1); `example` is a row, `token` says whether one is needed."""
    kinds: list[type[BaseModel]] = [InputRow, InputRows, OutputRow, OutputRowList, Mistakes, Health]
    _, schemas = models_json_schema(
        [(kind, "validation") for kind in kinds], ref_template="#/components/schemas/{model}"
    )
    document: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {
            "title": "deepthink serve",
            "version": version("deepthink-cli"),
            "description": "Labels rows with a memory, as deepthink predict does.",
        },
        "paths": {
            "/predict": {"post": _predict(example)},
            "/health": _get("health", "What is served", "application/json", _ref(Health)),
            "/metrics": _get("metrics", "Counters, for Prometheus", "text/plain", {"type": "string"}),
            "/openapi.json": _get("openapi", "This description", "application/json", {"type": "object"}),
        },
        "components": {"schemas": schemas["$defs"]},
    }
    loading = _response("The model is being loaded", _ref(Health))
    document["paths"]["/health"]["get"]["responses"]["503"] = loading
    if token:
        document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        document["security"] = [{"token": []}]
        for path in document["paths"].values():
            for operation in path.values():
                operation["responses"]["401"] = _response("The token is missing or wrong", _ref(Mistakes))
    return document


def _predict(example: dict[str, str]) -> dict[str, Any]:
    """The request that labels rows."""
    about = "For a row that cannot be labelled: refuse the request with 422, or answer its error in its place."
    on_error = {
        "name": "on_error",
        "in": "query",
        "description": about,
        "schema": {"enum": ["stop", "skip"], "default": "stop"},
    }
    body = {"schema": {"anyOf": [_ref(InputRow), _ref(InputRows)]}, "example": example}
    answered = _response(
        "An object for an object, an array for an array; several iterations always make an array",
        {"anyOf": [_ref(OutputRow), _ref(OutputRowList)]},
    )
    refused = {str(status): _response(reason, _ref(Mistakes)) for status, reason in _REFUSED.items()}
    return {
        "summary": "Label one row, or many",
        "operationId": "predict",
        "parameters": [on_error],
        "requestBody": {"required": True, "content": {"application/json": body}},
        "responses": {"200": answered, **refused},
    }


def _ref(kind: type[BaseModel]) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{kind.__name__}"}


def _response(about: str, schema: dict[str, Any], kind: str = "application/json") -> dict[str, Any]:
    return {"description": about, "content": {kind: {"schema": schema}}}


def _get(name: str, about: str, kind: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"get": {"summary": about, "operationId": name, "responses": {"200": _response(about, schema, kind)}}}
