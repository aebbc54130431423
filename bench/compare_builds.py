# SPDX-License-Identifier: Apache-2.0
"""Two builds of this project side by side: is the new one slower?

    python bench/compare_builds.py OLD/build NEW/build [--pairs 12] [--only controller,python] [--limit 1.02]

Both folders must hold a complete build with benchmarks (`make bench`). The two builds take turns, in the order old,
new, new, old, so that a machine whose speed drifts affects both alike. Each case prints the median time of the old
build and the ratio new / old with its 95% interval (Student's t over the logarithms of the pairs). The exit status is
1 where the upper end of an interval is above the limit.

Cases: `controller` (one step over 280 and 44,544 units), `replay` (a CSV trace of 32 MiB), `train` (steps of the
training engine, with and without the low path), `wide` (one block with the widths of LLaMA-2 13B; needs 6 GB per
build), `python` (`ctl.step`, and forward and backward of a layer with our low path).
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

# Quantiles of Student's t at 97.5% for 1, 2, ... degrees of freedom.
T_QUANTILES = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131]

# Runs in one process per build; reads one line per measurement, answers with seconds.
WORKER = """
import json, os, sys, tempfile, time
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
import torch
torch.set_num_threads(1)
case, build = sys.argv[1:3]
torch.manual_seed(0)
if case.startswith(("train", "wide")):
    torch.ops.load_library(build + "/lib/libgnmr_engine.so")
    settings = {"model": "nano", "steps": 30, "batch": 4, "sequence": 64, "eval_every": 0, "eval_batches": 1,
                "checkpoint_every": 0, "threads": 1}
    settings |= {"recipe": "none", "controller": "none"} if case.endswith("high") else {"recipe": "fp8-tensorwise"}
    if case.startswith("wide"):
        config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
                  "hidden_size": 5120, "intermediate_size": 13824, "num_hidden_layers": 1, "num_attention_heads": 40,
                  "num_key_value_heads": 40, "vocab_size": 256, "rms_norm_eps": 1e-5, "max_position_embeddings": 64,
                  "rope_theta": 10000.0, "tie_word_embeddings": False}
        folder = tempfile.TemporaryDirectory()
        path = folder.name + "/config.json"
        with open(path, "w") as file:
            json.dump(config, file)
        settings |= {"model": path, "steps": 3, "batch": 1, "sequence": 32}
    def measure():
        with tempfile.TemporaryDirectory() as out:
            result = json.loads(torch.ops.gnmr.train(json.dumps(settings | {"out": out + "/run"}), ""))
        seconds = sorted(result["seconds"])
        return seconds[len(seconds) // 2]
elif case == "step":
    import gnmr
    model = torch.nn.ModuleList(torch.nn.Linear(64, 64, bias=False) for _ in range(280))
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, 1e-3)
    ctl = gnmr.attach(model, watch=True, quiet=True)
    def measure():
        start = time.perf_counter()
        for _ in range(20):
            ctl.step(max_norm=1.0)
        return (time.perf_counter() - start) / 20
else:
    import gnmr
    model = torch.nn.Sequential(torch.nn.Linear(512, 512), torch.nn.Linear(512, 512))
    try:
        from gnmr.options import AttachOptions
        has_patrol = "patrol" in AttachOptions.__annotations__
    except ImportError:
        has_patrol = False  # an earlier build
    options = {"patrol": 0.0} if case.endswith("plain") and has_patrol else {}
    ctl = gnmr.attach(model, recipe="fp8-tensorwise", quiet=True, **options)
    points = torch.randn(256, 512)
    def measure():
        start = time.perf_counter()
        for _ in range(5):
            model(points).sum().backward()
        return (time.perf_counter() - start) / 5
measure()
print("ready", flush=True)
for _ in sys.stdin:
    print(measure(), flush=True)
"""


@contextmanager
def worker(case: str, build: Path) -> Iterator[Callable[[], float]]:
    """A process of one build that measures on request."""
    environment = os.environ | {"PYTHONPATH": str(build / "python")}
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", WORKER, case, str(build)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    assert process.stdin is not None and process.stdout is not None
    source, sink = process.stdout, process.stdin
    while (line := source.readline()) != "ready\n":
        if not line:
            raise SystemExit(f"{case}: the process of {build} ended")

    def measure() -> float:
        sink.write("go\n")
        sink.flush()
        return float(source.readline())

    try:
        yield measure
    finally:
        sink.close()
        process.wait()


@contextmanager
def google_benchmark(name: str, pattern: str, build: Path) -> Iterator[Callable[[], float]]:
    """A benchmark program of one build; the time of its only matching case."""

    def measure() -> float:
        with tempfile.NamedTemporaryFile(suffix=".json") as file:
            subprocess.run(
                [build / "bin" / name, f"--benchmark_filter={pattern}", f"--benchmark_out={file.name}"],
                check=True,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            (row,) = json.loads(Path(file.name).read_text())["benchmarks"]
        return 1e-6 * row["step_us"] if "step_us" in row else 1 / row["replay_mb_s"]

    yield measure


CASES: dict[str, dict[str, Callable]] = {
    "controller": {
        f"controller, {units} units, calm": lambda build, units=units: google_benchmark(
            "gnmr_controller_bench", f"units:{units}/samples:10000/load:0", build
        )
        for units in (280, 44544)
    },
    "replay": {"replay of a CSV trace": lambda build: google_benchmark("gnmr_replay_bench", "digits:5", build)},
    "train": {
        "training step, nano, high": lambda build: worker("train-high", build),
        "training step, nano, fp8-tensorwise": lambda build: worker("train-low", build),
    },
    "wide": {"training step, 13B's widths, fp8-tensorwise": lambda build: worker("wide", build)},
    "python": {
        "ctl.step, 280 units": lambda build: worker("step", build),
        "layer of the Python package, fp8-tensorwise": lambda build: worker("layer", build),
        "layer of the Python package, no patrol": lambda build: worker("layer-plain", build),
    },
}


def ratio_of(pairs: list[tuple[float, float]]) -> tuple[float, float, float]:
    """Geometric mean of new / old, and the ends of its 95% interval."""
    logs = [math.log(new / old) for old, new in pairs]
    mean = statistics.mean(logs)
    quantile = T_QUANTILES[len(logs) - 2] if len(logs) - 2 < len(T_QUANTILES) else 2.04
    half = quantile * statistics.stdev(logs) / math.sqrt(len(logs))
    return math.exp(mean), math.exp(mean - half), math.exp(mean + half)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path, help="the build folder to compare with")
    parser.add_argument("new", type=Path, help="the build folder that must not be slower")
    parser.add_argument("--pairs", type=int, default=12, help="pairs per case, at least 3 (default 12)")
    parser.add_argument("--only", default="", help=f"cases, separated by commas: {', '.join(CASES)} (default: all)")
    parser.add_argument("--limit", type=float, default=1.02, help="largest allowed upper end (default 1.02)")
    arguments = parser.parse_args()
    wanted = arguments.only.split(",") if arguments.only else list(CASES)
    if unknown := [name for name in wanted if name not in CASES]:
        parser.error(f"unknown case {unknown[0]!r}; there are {', '.join(CASES)}")
    if arguments.pairs < 3:
        parser.error("expected at least 3 pairs")
    too_slow = 0
    print("| case | old, ms | new / old | 95% interval | pairs |\n|---|---|---|---|---|", flush=True)
    for name, make in (row for group in wanted for row in CASES[group].items()):
        pairs = []
        with make(arguments.old.resolve()) as old, make(arguments.new.resolve()) as new:
            for index in range(arguments.pairs):
                if index % 2 == 0:
                    first = old()
                    pairs.append((first, new()))
                else:
                    first = new()
                    pairs.append((old(), first))
        ratio, low, high = ratio_of(pairs)
        too_slow += high > arguments.limit
        milliseconds = 1e3 * statistics.median(old for old, _ in pairs)
        print(f"| {name} | {milliseconds:.3f} | {ratio:.3f} | {low:.3f} to {high:.3f} | {len(pairs)} |", flush=True)
    if too_slow:
        print(f"{too_slow} of the cases: the upper end is above {arguments.limit}", file=sys.stderr)
    return 1 if too_slow else 0


if __name__ == "__main__":
    raise SystemExit(main())
