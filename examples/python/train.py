# SPDX-License-Identifier: Apache-2.0
"""A training loop with GNMR in it: python train.py [--steps N]

A small network learns to name the quadrant of a point, in emulated FP8. From step 60 on the low path of one layer is
broken for some steps, as a bad scale would break it; GNMR finds the layer and sends it to high precision.
"""

import argparse

import torch
from torch import Tensor, nn
from torch.nn import functional

import gnmr


def make_model() -> nn.Module:
    layers: list[nn.Module] = [nn.Linear(2, 64)]
    for _ in range(6):
        layers += [nn.GELU(), nn.Linear(64, 64)]
    return nn.Sequential(*layers, nn.GELU(), nn.Linear(64, 4))


def make_batch() -> tuple[Tensor, Tensor]:
    points = torch.randn(256, 2)
    return points, (points[:, 0] > 0).long() + 2 * (points[:, 1] > 0).long()


def break_layer(ctl: gnmr.Control, name: str, factor: float | None) -> None:
    """For this example only: what the layer's low path makes is this many times too large; None: it is right."""
    switch = next(unit.switch for unit in ctl.units if unit.name == name)
    switch.plant_factor(factor)


def main(steps: int) -> None:
    torch.manual_seed(0)
    model = make_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    ctl = gnmr.attach(model, max_o=1, recipe="fp8-tensorwise", watch_steps=20)
    for step in range(1, steps + 1):
        break_layer(ctl, "6", 30.0 if 60 <= step < 65 else None)
        points, targets = make_batch()

        def run() -> Tensor:
            loss = functional.cross_entropy(model(points), targets)
            loss.backward()
            return loss

        optimizer.zero_grad()
        loss = run()
        result = ctl.trial(run, max_norm=1.0, loss=loss)
        if result.applied:
            optimizer.step()
        if result.rerun:
            print(
                f"step {step}: {result.rerun}, verdict {result.verdict}; to high precision: "
                f"{', '.join(result.admitted) or 'nobody'}; loss {float(loss.detach()):.3f}, then {result.loss:.3f}"
            )
        elif step % 20 == 0:
            print(f"step {step}: loss {float(loss.detach()):.3f}, gradient norm {result.wait().total_norm:.3f}")
    ctl.detach()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=100)
    main(parser.parse_args().steps)
