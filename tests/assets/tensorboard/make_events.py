# SPDX-License-Identifier: Apache-2.0
"""Writes the event files in this folder, and beside them what TensorBoard's own reader finds in them.

    pip install tensorboard && python3 make_events.py

`simple` has scalars as PyTorch's SummaryWriter writes them, `tensor` as TensorFlow 2 does; `run` is a folder with two
files of which the second resumes the first at an earlier step. Run it again only to change the cases: the files carry
times and so change each time.
"""

import json
import math
import os
import shutil

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import HistogramProto, Summary
from tensorboard.plugins.scalar.summary import scalar_pb
from tensorboard.plugins.scalar.summary_v2 import scalar_pb as scalar_pb_v2
from tensorboard.summary.writer.event_file_writer import EventFileWriter
from tensorboard.util import tensor_util

HERE = os.path.dirname(os.path.abspath(__file__))
UNITS = ["grad_norm/layers.0.q", "grad_norm/layers.0.k", "grad_norm/layers.1.q"]


def norm(unit, step):
    if unit == 1 and step == 4:
        return math.nan
    if unit == 2 and step == 5:
        return math.inf
    return (unit + 1) * 0.37 / (step + 1)


def write(folder, name, steps, event_of):
    os.makedirs(folder, exist_ok=True)
    writer = EventFileWriter(folder)
    for step in steps:
        for event in event_of(step):
            event.step = step
            event.wall_time = 1700000000.0 + step
            writer.add_event(event)
    writer.close()
    written = [file for file in os.listdir(folder) if not file.startswith("events.out.tfevents.0")]
    os.rename(os.path.join(folder, written[0]), os.path.join(folder, name))


def simple_events(step):
    yield Event(summary=Summary(value=[Summary.Value(tag="loss", simple_value=9.0 - step)]))
    yield Event(summary=Summary(value=[Summary.Value(tag="grad-norm vs samples", simple_value=1.0)]))
    yield Event(summary=Summary(value=[Summary.Value(tag="weights", histo=HistogramProto(min=0, max=1, num=2))]))
    for unit, tag in enumerate(UNITS):
        if unit == 2 and step % 2 == 0:
            continue
        yield Event(summary=Summary(value=[Summary.Value(tag=tag, simple_value=norm(unit, step))]))


def tensor_events(step):
    values = []
    for unit, tag in enumerate(UNITS):
        pb = scalar_pb_v2(tag, norm(unit, step)) if step % 2 else scalar_pb(tag, norm(unit, step))
        for value in pb.value:
            value.tag = tag
        values.extend(pb.value)
    double = tensor_util.make_tensor_proto(float(step) + 0.1, dtype="float64")
    values.append(Summary.Value(tag="grad_norm/double", tensor=double))
    values.append(Summary.Value(tag="vector/grad_norm", tensor=tensor_util.make_tensor_proto([1.0, 2.0])))
    yield Event(summary=Summary(value=values))


def text(value):
    if math.isnan(value):
        return "nan"
    return "inf" if math.isinf(value) else value


def expectations(path):
    """What TensorBoard's reader finds: {tag: {step: value}}, the last value of a step."""
    reader = EventAccumulator(path, size_guidance={"scalars": 0, "tensors": 0}, purge_orphaned_data=False)
    reader.Reload()
    found = {}
    for tag in reader.Tags()["scalars"]:
        found[tag] = {str(event.step): text(event.value) for event in reader.Scalars(tag)}
    for tag in reader.Tags()["tensors"]:
        arrays = {str(event.step): tensor_util.make_ndarray(event.tensor_proto) for event in reader.Tensors(tag)}
        if all(array.size == 1 for array in arrays.values()):
            found[tag] = {step: text(float(array)) for step, array in arrays.items()}
    return found


def main():
    for name in ("simple", "tensor", "run"):
        shutil.rmtree(os.path.join(HERE, name), ignore_errors=True)
    file = "events.out.tfevents.0000000001.host"
    write(os.path.join(HERE, "simple"), file, range(8), simple_events)
    write(os.path.join(HERE, "tensor"), file, range(8), tensor_events)
    write(os.path.join(HERE, "run"), file, range(6), simple_events)
    write(os.path.join(HERE, "run"), "events.out.tfevents.0000000002.host", range(4, 9), simple_events)
    expected = {name: expectations(os.path.join(HERE, name)) for name in ("simple", "tensor")}
    with open(os.path.join(HERE, "expected.json"), "w", encoding="utf-8") as out:
        json.dump(expected, out, indent=1)
        out.write("\n")


if __name__ == "__main__":
    main()
