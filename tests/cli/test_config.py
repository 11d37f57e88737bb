"""Options are checked where they enter, by the name of their option, all of them at once."""

from __future__ import annotations

import pytest

from deepthink_cli.errors import BelowThreshold, DeepThinkError, ExitCode, InputError
from deepthink_cli.method import MethodOptions
from deepthink_cli.model.options import ModelOptions


def refusals(**values: object) -> tuple[str, ...]:
    kind = MethodOptions if values.keys() <= {*MethodOptions.model_fields, "temperature"} else ModelOptions
    with pytest.raises(InputError) as caught:
        kind.checked(**values)
    return caught.value.messages


def test_the_defaults_are_the_papers() -> None:
    method = MethodOptions.checked()
    assert (method.iterations, method.eta, method.momentum, method.positions) == (5, 0.01, 0, "continued")
    assert method.kept == (5,)


@pytest.mark.parametrize("eta", [0, -0.01, 1.0000001, float("nan"), float("inf"), float("-inf"), "much"])
def test_eta_lies_in_the_half_open_interval(eta: object) -> None:
    assert refusals(eta=eta) == (f"eta {eta}: the gate is a number in (0, 1]; the paper uses 0.01",)


@pytest.mark.parametrize("eta", [1, 1e-9])
def test_the_ends_of_etas_interval_are_taken_as_they_are(eta: float) -> None:
    assert MethodOptions.checked(eta=eta).eta == eta


@pytest.mark.parametrize("iterations", [0, -3, 2.5, "many", None])
def test_fewer_than_one_reading_is_refused(iterations: object) -> None:
    hint = "T counts readings: a whole number, 1 (plain in-context learning) or more"
    assert refusals(iterations=iterations) == (f"iterations {iterations}: {hint}",)


@pytest.mark.parametrize("momentum", [1, -0.1, float("nan")])
def test_momentum_is_less_than_one(momentum: float) -> None:
    hint = "a number in [0, 1); 0 is the paper, 0.9 the official code"
    assert refusals(momentum=momentum) == (f"momentum {momentum}: {hint}",)


@pytest.mark.parametrize(
    ("keep", "kept"),
    [("last", (9,)), ("all", (1, 2, 3, 4, 5, 6, 7, 8, 9)), ("2", (2,)), ("9,1", (1, 9)), ("1, 4 ,4", (1, 4))],
)
def test_the_kept_iterations_are_sorted_and_distinct(keep: str, kept: tuple[int, ...]) -> None:
    assert MethodOptions.checked(iterations=9, keep=keep).kept == kept


@pytest.mark.parametrize("keep", ["", "first", "1,,2", "-1", "1.5", "1;2", "last,1"])
def test_other_words_for_what_to_keep_are_refused(keep: str) -> None:
    assert refusals(keep=keep) == (f"keep {keep}: give last, all, or iterations as in 1,3,5",)


@pytest.mark.parametrize("keep", ["0", "0,2", "2,5"])
def test_an_iteration_that_is_not_reached_cannot_be_kept(keep: str) -> None:
    with pytest.raises(InputError) as caught:
        _ = MethodOptions.checked(iterations=4, keep=keep).kept
    assert str(caught.value) == f"keep {keep}: iterations run from 1 to 4; raise iterations or name others"


@pytest.mark.parametrize("device", ["auto", "cpu", "mps", "cuda", "cuda:0", "cuda:12"])
def test_devices_have_the_names_that_torch_gives_them(device: str) -> None:
    assert ModelOptions.checked(device=device).device == device


@pytest.mark.parametrize("device", ["", "gpu", "CPU", "cuda:", "cuda:x", "cuda:0\n", "cpu:0", "xcuda"])
def test_other_names_of_devices_are_refused(device: str) -> None:
    assert refusals(device=device) == (f"device {device}: use auto, cpu, cuda, cuda:N or mps",)


def test_all_wrong_options_of_the_method_are_told_at_once() -> None:
    messages = refusals(iterations=0, eta=2, momentum=1, positions="random", keep="some", temperature=1)
    assert [message.split(":")[0] for message in messages] == [
        "iterations 0",
        "eta 2",
        "momentum 1",
        "positions random",
        "keep some",
        "temperature 1",
    ]


def test_all_wrong_options_of_the_model_are_told_at_once() -> None:
    assert refusals(model="gpt2", dtype="float64", device="tpu", device_map="balanced", quantize="2bit") == (
        "dtype float64: use auto, float32, bfloat16 or float16",
        "device tpu: use auto, cpu, cuda, cuda:N or mps",
        "device_map balanced: use auto",
        "quantize 2bit: use 8bit or 4bit",
    )


@pytest.mark.parametrize(
    ("error", "code"),
    [(DeepThinkError, 1), (InputError, 2), (BelowThreshold, 3)],
)
def test_every_kind_of_error_ends_the_program_with_its_own_code(error: type[DeepThinkError], code: int) -> None:
    assert error("x").exit_code == code
    assert (ExitCode.DONE, ExitCode.BUG, ExitCode.INTERRUPTED) == (0, 70, 130)
