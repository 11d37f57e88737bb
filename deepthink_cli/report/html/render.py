"""Write a page as one HTML file that needs no network and refuses any."""

from __future__ import annotations

import base64
import hashlib
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from deepthink_cli.io.text import printable
from deepthink_cli.report.figures import COLOURS
from deepthink_cli.report.html.page import WebPage, chart_json
from deepthink_cli.report.html.picture import picture_of

if TYPE_CHECKING:
    from jinja2 import Environment

PACKAGE = "deepthink_cli.report.html"
SCRIPTS = ("decode.js", "samples.js", "grid.js", "tables.js", "charts.js", "detail.js", "browser.js", "main.js")
STYLE = "page.css"


def render(page: WebPage) -> str:
    """The page as HTML; the same page gives the same text.

    Everything that comes from data is escaped, or packed in base64. The page's Content-Security-Policy allows its own
    scripts and styles, by their digests, and no connection.
    """
    library, own = _asset("uPlot.iife.min.js"), "\n".join(_template(name) for name in SCRIPTS)
    styles = [_asset("uPlot.min.css"), _template(STYLE)]
    groups = [(group, [(chart, picture_of(chart)) for chart in group.charts]) for group in page.curves]
    template = _environment().get_template("page.html")
    return template.render(
        page=page,
        groups=groups,
        data={"colours": COLOURS, "charts": [[chart_json(chart) for chart in group.charts] for group in page.curves]},
        columns=[] if page.samples is None else page.samples.columns(),
        styles=styles,
        scripts=[library, own],
        licence=_asset("LICENSE"),
        policy=_policy([library, own], styles),
    )


def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    return Environment(
        loader=PackageLoader(PACKAGE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_shown,
    )


def _shown(value: Any) -> Any:
    """Text with its control characters, changes of writing direction and invalid characters escaped."""
    if type(value) is not str:
        return value
    return printable(value, most=len(value)).encode(errors="backslashreplace").decode()


def _policy(scripts: list[str], styles: list[str]) -> str:
    rules = {
        "default-src": "'none'",
        "script-src": " ".join(map(_digest, scripts)),
        "style-src": " ".join(map(_digest, styles)),
        "img-src": "data:",
        "connect-src": "'none'",
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    return "; ".join(f"{name} {value}" for name, value in rules.items())


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _asset(name: str) -> str:
    return files(PACKAGE).joinpath("assets", "uplot", name).read_text(encoding="utf-8")


def _template(name: str) -> str:
    return files(PACKAGE).joinpath("templates", name).read_text(encoding="utf-8")
