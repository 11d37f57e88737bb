"""Update rules: their interface, the paper's gate with the momentum of the official code, and all rules by name.

Files and results have rules as text, such as `layer-ramp:first=0,last=1`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, is_dataclass
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol

from pydantic import AfterValidator, TypeAdapter, ValidationError

from deepthink_cli.errors import InputError
from deepthink_cli.io.records import Share, place, reason
from deepthink_cli.registry import Registry, name_and_parameters

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Place:
    """The tensor that is updated: `layer` counts from 0; the first update has iteration 2."""

    iteration: int
    layer: int
    layers: int
    part: Literal["keys", "values"]


class UpdateRule(Protocol):
    """The step of the memory after each reading but the first (Eq. 4): a frozen dataclass, with parameters as fields.

    The rule is applied to every tensor of the memory, in float32 and without gradients.
    """

    def __call__(
        self, history: Tensor, present: Tensor, state: Tensor | None, place: Place
    ) -> tuple[Tensor, Tensor | None]:
        """Return the tensor's next value, and the `state` of its next update, or None.

        Args:
            history: K~_(t-1) or V~_(t-1) of one layer, (kv_heads, L, head_dim); must not be changed.
            present: K_t or V_t, of the same shape; may be overwritten.
            state: the state that the rule last returned for this tensor, None at the first update; may be overwritten.
            place: the layer, the part and the reading of the tensor.
        """
        ...


@dataclass(frozen=True)
class Gate(UpdateRule):
    """A step of eta toward the present: K~_t = K~_(t-1) + eta m_t (Eq. 4).

    m_t = (K_t - K~_(t-1)) + momentum m_(t-1). The paper has no momentum (0); the official code's default is 0.9.
    A subclass whose gate is not the same for every tensor and reading overrides `eta_at`.
    """

    source = "Yang et al. 2023, arXiv 2305.13016, Eq. 4"

    eta: Share = 0.01
    momentum: Share = 0.0

    def __post_init__(self) -> None:
        if not (0 <= self.eta <= 1 and 0 <= self.momentum <= 1):
            raise InputError(f"eta {self.eta}, momentum {self.momentum}: each is from 0 to 1")

    def __call__(
        self, history: Tensor, present: Tensor, state: Tensor | None, place: Place
    ) -> tuple[Tensor, Tensor | None]:
        """K~_t and, with momentum, m_t; computed in the storage of `present` and `state`."""
        step, eta = present.sub_(history), self.eta_at(place)
        if not self.momentum:
            return step.mul_(eta).add_(history), None
        if state is None:
            return (step * eta).add_(history), step
        step.add_(state.mul_(self.momentum))
        return state.copy_(step).mul_(eta).add_(history), step

    def eta_at(self, place: Place) -> float:
        """The gate of one tensor in one reading; in the paper eta itself."""
        return self.eta

    def __str__(self) -> str:
        values = [f"{field.name} {getattr(self, field.name)}" for field in fields(self)]
        name = re.sub(r"(?<=[a-z])(?=[A-Z])", "-", type(self).__name__).lower()  # as in the registry
        return ", ".join(values if type(self) is Gate else [name, *values])


def gate_values(rule: UpdateRule) -> dict[str, Any]:
    """Eta and momentum of a rule by name; 0 for a rule without them."""
    return {field.name: float(getattr(rule, field.name, 0.0)) for field in fields(Gate)}


GATE = "gate"
_adapter = cache(TypeAdapter)


def _check(name: str, rule: Any) -> type[Any]:
    if not (isinstance(rule, type) and is_dataclass(rule) and "__call__" in dir(rule)):
        raise TypeError("not a dataclass whose instances can be called")
    return rule


RULES: Registry[type[Any]] = Registry("updates", {GATE: Gate}, _check)


def name_of(rule: UpdateRule) -> str:
    """The name of a rule; raises InputError for an unregistered rule."""
    for name, kind in RULES.items():
        if type(rule) is kind:
            return name
    raise InputError(f"{type(rule).__name__}: not a registered update rule; add it to deepthink_cli.updates")


def values_of(rule: UpdateRule) -> dict[str, Any]:
    """The parameters of a rule by name."""
    return asdict(rule)  # type: ignore[call-overload, no-any-return]


def rule_of(name: str, values: Mapping[str, Any]) -> UpdateRule:
    """The rule of this name with these parameters; numbers may be texts.

    Raises InputError for an unknown rule, parameter or value.
    """
    if name not in RULES:
        raise InputError(f"update rule {name!r} is unknown here; the known ones are {', '.join(RULES)}")
    parameters = [field.name for field in fields(RULES[name])]
    for parameter in values:
        if parameter not in parameters:
            known = f"its parameters are {', '.join(parameters)}" if parameters else "it has no parameters"
            raise InputError(f"update rule {name!r}: no parameter {parameter!r}; {known}")
    kind: Any = RULES[name]
    try:
        rule: UpdateRule = _adapter(kind).validate_python(dict(values))
    except ValidationError as error:
        first = error.errors()[0]
        raise InputError(f"update rule {name!r}: {place(first)}: {reason(first)}") from error
    return rule


def parse_rule(text: str, gate: Gate) -> UpdateRule:
    """The rule that a text names, with the parameters of `gate` if it has them.

    Raises InputError for a text that is not NAME or NAME:PARAMETER=VALUE,..., and as `rule_of` does.
    """
    try:
        name, parameters = name_and_parameters(text)
    except ValueError as error:
        raise InputError(f"update rule {text}: {error}") from error
    known = {field.name for field in fields(RULES[name])} if name in RULES else set()
    own = {field: value for field, value in values_of(gate).items() if field in known}
    for field in own:
        if field in parameters:
            raise InputError(f"update rule {text}: {field} is not a parameter here; use --{field}")
    return rule_of(name, own | parameters)


def rule_text(rule: UpdateRule) -> str | None:
    """The canonical text of a rule, with all parameters except the gate's; None for the paper's gate."""
    if type(rule) is Gate:
        return None
    parameters = {name: value for name, value in values_of(rule).items() if name not in gate_values(rule)}
    written = ",".join(
        f"{name}={int(value) if isinstance(value, float) and value.is_integer() else value}"
        for name, value in parameters.items()
    )
    return f"{name_of(rule)}:{written}" if written else name_of(rule)


def brief(rule: UpdateRule) -> str:
    """The parameters of the gate, and the rule unless it is the paper's gate, as a short text."""
    numbers = [f"{name} {value:g}" for name, value in gate_values(rule).items()]
    return ", ".join([*numbers, *filter(None, [rule_text(rule)])])


def checked_rule(text: str) -> str:
    """The canonical text of the rule that a text names; raises ValueError for an unknown rule."""
    try:
        return rule_text(parse_rule(text, Gate())) or GATE
    except InputError as error:
        raise ValueError(error.messages[0]) from error


RuleText = Annotated[str, AfterValidator(checked_rule)]  # as in `gate`, or `NAME:PARAMETER=VALUE`
