# SPDX-License-Identifier: Apache-2.0
"""Compares every code point and a million float32 values with ml_dtypes, integers with numpy.

    against_ml_dtypes.py FORMATS_PROBE

Exit code 0: equal; 1: not, with the first differences; 77: ml_dtypes or numpy is not installed.
"""

import subprocess
import sys

try:
    import ml_dtypes
    import numpy as np
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

FLOATS = {
    "e4m3": "float8_e4m3fn",
    "e5m2": "float8_e5m2",
    "e3m2": "float6_e3m2fn",
    "e2m3": "float6_e2m3fn",
    "e2m1": "float4_e2m1fn",
    "e8m0": "float8_e8m0fnu",
    "bfloat16": "bfloat16",
}
INTEGERS = {"int8": (8, 127), "int4": (4, 7), "int3": (3, 3)}
RANDOM_VALUES = 1_000_000


def probe(program, *arguments, data, result):
    done = subprocess.run([program, *arguments], input=data.tobytes(), stdout=subprocess.PIPE, check=True)
    return np.frombuffer(done.stdout, dtype=result)


def report(what, inputs, ours, theirs, equal):
    wrong = np.flatnonzero(~equal)
    if wrong.size == 0:
        print(f"equal: {what} ({inputs.size})")
        return True
    print(f"DIFFERENT: {what}: {wrong.size} of {inputs.size}")
    for i in wrong[:5]:
        print(f"  {inputs[i]!r}: ours {ours[i]!r}, expected {theirs[i]!r}")
    return False


def test_values(points, generator):
    """Random bit patterns, values of all sizes around the format's range, its points, their ties and neighbours."""
    finite = np.unique(np.abs(points[np.isfinite(points)]).astype(np.float64))
    middles = (finite[1:] + finite[:-1]) / 2
    special = np.concatenate([finite, middles]).astype(np.float32)
    special = np.concatenate([special, np.nextafter(special, np.float32(np.inf)), np.nextafter(special, np.float32(0))])
    largest = np.float32(finite[-1])
    beyond = largest * np.linspace(0.9, 1.2, 4001, dtype=np.float32)
    tiny = np.concatenate([np.arange(1, 5000), np.arange(0x3FF000, 0x401000), np.arange(0x7FF000, 0x801000)])
    denormals = tiny.astype(np.uint32).view(np.float32)
    exact = np.concatenate([special, beyond, denormals, np.array([0, np.inf, np.nan], np.float32)])
    patterns = generator.integers(0, 1 << 32, RANDOM_VALUES, dtype=np.uint32).view(np.float32)
    low, high = np.log2(finite[finite > 0][0]) - 3, np.log2(finite[-1]) + 0.1
    spread = np.exp2(generator.uniform(max(low, -148), min(high, 127.9), RANDOM_VALUES)).astype(np.float32)
    spread *= generator.choice(np.array([-1, 1], np.float32), RANDOM_VALUES)
    return np.concatenate([exact, -exact, patterns, spread])


def check_float(program, name, generator):
    dtype = getattr(ml_dtypes, FLOATS[name])
    bits = ml_dtypes.finfo(dtype).bits
    code_type = np.uint16 if bits == 16 else np.uint8
    codes = np.arange(1 << bits, dtype=code_type)
    expected_points = codes.view(dtype).astype(np.float32)
    points = probe(program, "decode", name, data=codes, result=np.float32)
    same = (points.view(np.uint32) == expected_points.view(np.uint32)) | (np.isnan(points) & np.isnan(expected_points))
    good = report(f"{name} decode", codes, points, expected_points, same)

    values = test_values(expected_points, generator)
    has_nan = bool(np.isnan(expected_points).any())
    if name == "e8m0":
        values = values[(values > 0) & np.isfinite(values)]
    elif not has_nan:
        values = values[~np.isnan(values)]
    expected = values.astype(dtype).view(code_type)
    ours = probe(program, "encode", name, "nearest", "non_finite", data=values, result=code_type)
    is_nan = np.isnan(expected_points)
    same = (ours == expected) | (is_nan[ours] & is_nan[expected])
    good &= report(f"{name} encode, overflow non_finite", values, ours, expected, same)

    # Saturating: the same in range, the largest value beyond it, NaN as NaN.
    largest = codes[expected_points == ml_dtypes.finfo(dtype).max][0]
    smallest = largest | code_type(0 if name == "e8m0" else 1 << (bits - 1))
    out = ~np.isfinite(expected_points[expected]) & ~np.isnan(values)
    expected = np.where(out, np.where(values < 0, smallest, largest), expected)
    ours = probe(program, "encode", name, "nearest", "saturate", data=values, result=code_type)
    same = (ours == expected) | (is_nan[ours] & is_nan[expected])
    good &= report(f"{name} encode, overflow saturate", values, ours, expected, same)

    # A value of the format stays what it is, by chance too.
    whole = np.isfinite(expected_points)
    ours = probe(program, "encode", name, "stochastic", "saturate", "5", data=expected_points[whole], result=code_type)
    return good & report(
        f"{name} stochastic on its own values", expected_points[whole], ours, codes[whole], ours == codes[whole]
    )


def check_integer(program, name, generator):
    bits, largest = INTEGERS[name]
    mask = (1 << bits) - 1
    codes = np.arange(1 << bits, dtype=np.uint8)
    signed = np.where(codes > mask // 2, codes.astype(np.int32) - (1 << bits), codes.astype(np.int32))
    points = probe(program, "decode", name, data=codes, result=np.float32)
    good = report(f"{name} decode", codes, points, signed, points == signed)
    values = test_values(signed.astype(np.float32), generator)
    values = values[~np.isnan(values)]
    expected = np.clip(np.rint(values.astype(np.float64)), -largest, largest).astype(np.int64) & mask
    for overflow in ("saturate", "non_finite"):
        ours = probe(program, "encode", name, "nearest", overflow, data=values, result=np.uint8)
        good &= report(f"{name} encode, overflow {overflow}", values, ours, expected, ours == expected)
    return good


def main():
    if len(sys.argv) != 2:
        print(__doc__)
        return 2
    generator = np.random.default_rng(20240607)
    with np.errstate(all="ignore"):
        good = all(
            [check_float(sys.argv[1], name, generator) for name in FLOATS]
            + [check_integer(sys.argv[1], name, generator) for name in INTEGERS]
        )
    print(f"ml_dtypes {ml_dtypes.__version__}: " + ("all equal" if good else "differences above"))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
