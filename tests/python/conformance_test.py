# SPDX-License-Identifier: Apache-2.0
"""The conformance suite: three kinds of backends pass it, and broken ones do not."""

from collections.abc import Iterator

import pytest
import torch
from devices import DEVICE
from gnmr.checks.conformance import Check, Subject, examine, passed
from gnmr.low.linear import LowLinear
from subjects import RoundedLinear, RoundedSwitch, our_subject, user_subject
from torch import nn

import gnmr
from gnmr import _core, switches

SKIPPED_WITH_US = {"calm", "ranks"}  # there is no model with a low path without us, and one process


def outcomes(checks: list[Check]) -> dict[str, str]:
    return {check.name: check.outcome for check in checks}


def failures(subject: Subject) -> set[str]:
    return {check.name for check in examine(subject) if check.outcome == "failed"}


@pytest.fixture
def registered() -> Iterator[None]:
    gnmr.register_switch(RoundedLinear, lambda name, module: RoundedSwitch(module))
    yield
    switches._MAKERS.pop(RoundedLinear)


@pytest.mark.parametrize("recipe", _core.recipe_names())
def test_our_linear_conforms(recipe: str) -> None:
    checks = examine(our_subject(recipe))
    assert passed(checks), checks
    assert {check.name for check in checks if check.outcome == "skipped"} == SKIPPED_WITH_US, checks


def test_dropout_is_no_difference() -> None:
    assert passed(examine(our_subject(dropout=0.3)))


@pytest.mark.usefixtures("registered")
def test_a_users_module_conforms() -> None:
    found = outcomes(examine(user_subject()))
    assert "failed" not in found.values(), found
    assert {name for name, outcome in found.items() if outcome == "skipped"} == {
        "runs low",
        "trial",
        "planted",
        "ranks",
        "fresh",
    }


@pytest.mark.usefixtures("registered")
def test_the_model_is_left_as_it_came() -> None:
    subject = user_subject()
    subject.model.eval()
    before = {name: value.clone() for name, value in subject.model.state_dict().items()}
    examine(subject)
    assert not subject.model.training
    assert all(torch.equal(value, before[name]) for name, value in subject.model.state_dict().items())
    assert all(parameter.grad is None for parameter in subject.model.parameters())
    assert all(module.low for module in subject.model.modules() if isinstance(module, RoundedLinear))


@pytest.mark.usefixtures("registered")
def test_a_switch_that_does_nothing_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RoundedSwitch, "set_high", lambda self, high: None)
    assert failures(user_subject()) >= {"high", "each unit"}


@pytest.mark.usefixtures("registered")
def test_a_high_path_that_is_not_high_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = RoundedLinear.forward
    monkeypatch.setattr(RoundedLinear, "forward", lambda self, x: plain(self, x) if self.low else plain(self, x) * 1.01)
    assert "high" in failures(user_subject())


@pytest.mark.usefixtures("registered")
def test_a_switch_that_moves_within_a_step_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """The root's forward is not what the loss runs, so that nobody sees where the step begins."""
    subject = user_subject()
    inner = subject.loss_of
    subject.loss_of = lambda model: inner(nn.Sequential(*model.children()))
    assert failures(subject) == {"recomputed"}


def test_a_stale_memory_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def only_count(self: LowLinear, matrix: torch.Tensor, weight: torch.Tensor) -> None:
        self.calls += 1

    monkeypatch.setattr(LowLinear, "observe_forward", only_count)
    assert failures(our_subject("fp8-delayed")) == {"fresh"}


def test_errors_that_are_not_measured_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LowLinear, "end_trial", lambda self: [0.9, 0.9, 0.9])
    assert failures(our_subject()) >= {"trial", "planted"}


def test_more_memory_than_told_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    from gnmr.checks import preflight

    monkeypatch.setattr(preflight.ExtraBytes, "at", lambda self, tokens: -(10**9))
    assert "bytes" in failures(our_subject())


def test_a_model_without_units_says_so() -> None:
    ones = torch.ones(2, 32, device=DEVICE)
    checks = examine(Subject(nn.Sequential(nn.LayerNorm(32)).to(DEVICE), lambda model: model(ones).sum()))
    assert [(check.name, check.outcome) for check in checks] == [("attaches", "failed")]
