# SPDX-License-Identifier: Apache-2.0
"""Compares files with those of the safetensors library: read here, written here, byte for byte.

    against_safetensors.py MODELS_PROBE

Exit code 0: equal; 1: not; 77: torch or safetensors is not installed.
"""

import pathlib
import subprocess
import sys
import tempfile

try:
    import torch
    from safetensors import safe_open
    from safetensors.torch import load_file, save_file
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

TYPES = [
    torch.float64,
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.int32,
    torch.uint8,
    torch.float8_e4m3fn,
    torch.float8_e5m2,
    torch.bool,
]
SHAPES = [(), (1,), (3, 5), (2, 0, 3), (7, 1, 2, 1)]
NAMES = ['with "quotes"', "back\\slash", "tab\tline\nend", "größe.重み", "", "a.b.c", "\x01\x1f\x7f", "</script>"]


def make_tensors():
    generator = torch.Generator().manual_seed(1)
    tensors = {}
    for dtype in TYPES:
        for shape in SHAPES:
            values = torch.randn(shape, generator=generator) * 100
            name = f"{dtype}.{'x'.join(map(str, shape)) or 'scalar'}"
            tensors[name] = (values > 0) if dtype == torch.bool else values.abs().to(dtype)
    for name in NAMES:
        tensors[name] = torch.randn(3, generator=generator)
    return tensors


def same(one, other):
    def bits(tensor):
        return (tensor.dtype, tensor.shape, tensor.contiguous().flatten().view(torch.uint8).tolist())

    return set(one) == set(other) and all(bits(one[name]) == bits(other[name]) for name in one)


def check(what, passed):
    print(f"{'equal' if passed else 'DIFFERENT'}: {what}", flush=True)
    return passed


def compare(probe, folder, what, tensors, metadata):
    theirs, ours = folder / "theirs.safetensors", folder / "ours.safetensors"
    save_file(tensors, theirs, metadata=metadata)
    subprocess.run([probe, "copy", theirs, ours], check=True)
    passed = check(f"{what}: the library reads what was written here", same(load_file(ours), tensors))
    with safe_open(ours, framework="pt") as file:
        passed &= check(f"{what}: metadata", (file.metadata() or None) == metadata)
    # With several texts the library's own order changes from run to run.
    if metadata is None or len(metadata) == 1:
        passed &= check(f"{what}: the same bytes", ours.read_bytes() == theirs.read_bytes())
    return passed


def main():
    probe = sys.argv[1]
    tensors = make_tensors()
    passed = True
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        passed &= compare(probe, folder, "every type", tensors, {"format": "pt"})
        passed &= compare(probe, folder, "texts", {"a": torch.ones(2)}, {"format": "pt", 'ä"\n': "\\ü", "": ""})
        passed &= compare(probe, folder, "no texts", {"b": torch.ones(2), "a": torch.zeros(3)}, None)
        passed &= compare(probe, folder, "nothing", {}, None)
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
