# SPDX-License-Identifier: Apache-2.0
"""Really pretrained models in llama2.c's layout: their loss on stories is that of a second implementation here.

    against_llama2c.py MODELS_PROBE

The second one follows llama2.c: neighbours are rotated as complex numbers, weights are taken as they lie. Transformers
must agree too, with what is saved here. Models and text are looked for in the folder GNMR_DATA_DIR.

Exit code 0: equal; 1: not; 77: a package, the folder or a file in it is not there.
"""

import os
import pathlib
import struct
import subprocess
import sys
import tempfile

os.environ.setdefault("HF_HUB_OFFLINE", "1")
try:
    import numpy as np
    import torch
    import torch.nn.functional as F
    from safetensors.torch import load_file, save_file
    from transformers import LlamaForCausalLM
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

TOLERANCE = 1e-5
TEXT = "text/tinystories/tinystories_train_first2MiB.txt"
# Model, tokenizer, and the loss that such a model has on such text.
MODELS = [
    ("models/stories260K/stories260K.bin", "models/stories260K/tok512.bin", (1.0, 2.0)),
    ("models/stories15M/stories15M_bf16.bin", "tokenizers/llama2/tokenizer.bin", (0.8, 1.8)),
]


class Tokenizer:
    def __init__(self, path, size):
        data = path.read_bytes()
        self.scores, self.ids, at = [], {}, 4
        for number in range(size):
            score, length = struct.unpack_from("<fi", data, at)
            self.scores.append(score)
            self.ids.setdefault(data[at + 8 : at + 8 + length], number)
            at += 8 + length
        self.pieces = {number: piece for piece, number in self.ids.items()}

    def encode(self, text):
        """The best pair is joined until there is none; unknown characters are bytes, from 3."""
        tokens = []
        for character in " " + text:
            raw = character.encode()
            tokens += [self.ids[raw]] if raw in self.ids else [byte + 3 for byte in raw]
        while True:
            pairs = [
                (self.scores[joined], -i, joined)
                for i in range(len(tokens) - 1)
                if (joined := self.ids.get(self.pieces.get(tokens[i], b"\0") + self.pieces.get(tokens[i + 1], b"\0")))
            ]
            if not pairs:
                return [1] + tokens
            _, place, joined = max(pairs)
            tokens[-place : -place + 2] = [joined]


def read_model(path):
    """Sizes, and a function that takes the next weights of a shape."""
    data = path.read_bytes()
    sizes = struct.unpack_from("<7i", data)
    if "bf16" in path.name:
        weights = (np.frombuffer(data, np.uint16, offset=28).astype(np.uint32) << 16).view(np.float32)
    else:
        weights = np.frombuffer(data, np.float32, offset=28)
    weights, at = torch.from_numpy(weights.copy()), 0

    def take(*shape):
        nonlocal at
        at += int(np.prod(shape))
        return weights[at - int(np.prod(shape)) : at].view(shape)

    return sizes, take


def loss_as_llama2c(path, tokens, targets):
    (dim, hidden, layers, heads, kv_heads, vocabulary, _), take = read_model(path)
    size = dim // heads
    embedding = take(vocabulary, dim)
    norm1, wq, wk = take(layers, dim), take(layers, dim, dim), take(layers, kv_heads * size, dim)
    wv, wo, norm2 = take(layers, kv_heads * size, dim), take(layers, dim, dim), take(layers, dim)
    w1, w2, w3 = take(layers, hidden, dim), take(layers, dim, hidden), take(layers, hidden, dim)
    last_norm = take(dim)
    length = tokens.shape[1]
    angles = torch.outer(torch.arange(length), 10000 ** (-torch.arange(0, size, 2) / size))
    turn = torch.polar(torch.ones_like(angles), angles)[:, None]

    def rotate(x):
        pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
        return torch.view_as_real(pairs * turn).flatten(-2)

    def norm(x, weight):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * weight

    x = embedding[tokens]
    mask = torch.full((length, length), float("-inf")).triu(1)
    for i in range(layers):
        h = norm(x, norm1[i])
        q = rotate((h @ wq[i].T).view(*h.shape[:2], heads, size)).transpose(1, 2)
        k = rotate((h @ wk[i].T).view(*h.shape[:2], kv_heads, size)).transpose(1, 2)
        v = (h @ wv[i].T).view(*h.shape[:2], kv_heads, size).transpose(1, 2)
        k, v = (t.repeat_interleave(heads // kv_heads, dim=1) for t in (k, v))
        weights = torch.softmax(q @ k.transpose(2, 3) / size**0.5 + mask, -1)
        x = x + (weights @ v).transpose(1, 2).flatten(2) @ wo[i].T
        h = norm(x, norm2[i])
        x = x + (F.silu(h @ w1[i].T) * (h @ w3[i].T)) @ w2[i].T
    return F.cross_entropy((norm(x, last_norm) @ embedding.T).flatten(0, 1), targets.flatten()).item()


def compare(probe, folder, data, model, tokenizer, usual):
    sizes, _ = read_model(data / model)
    encoder = Tokenizer(data / tokenizer, sizes[5])
    rows = []
    for story in (data / TEXT).read_text(errors="ignore").split("<|endoftext|>"):
        row = encoder.encode(story.strip()[:1000])
        rows += [row[:161]] if len(row) >= 161 else []
        if len(rows) == 6:
            break
    batch = torch.tensor(rows)
    tokens, targets = batch[:, :-1].contiguous(), batch[:, 1:].contiguous()
    save_file({"tokens": tokens, "targets": targets}, folder / "batch.safetensors")
    with torch.no_grad():
        expected = loss_as_llama2c(data / model, tokens, targets)
    losses = {}
    subprocess.run([probe, "save", data / model, folder / "model", "weights"], check=True)
    for name, path in [("the file", data / model), ("saved and loaded", folder / "model")]:
        out = folder / "out.safetensors"
        subprocess.run([probe, "gradients", path, folder / "batch.safetensors", out], check=True)
        losses[name] = load_file(out)["loss"].item()
    with torch.no_grad():
        logits = LlamaForCausalLM.from_pretrained(folder / "model", dtype=torch.float32)(tokens).logits
        losses["transformers"] = F.cross_entropy(logits.flatten(0, 1), targets.flatten()).item()
    passed = usual[0] < expected < usual[1]
    passed &= all(abs(loss - expected) < TOLERANCE * expected for loss in losses.values())
    print(
        f"{'equal' if passed else 'DIFFERENT'}: {model}: {len(rows)} rows, loss {expected:.6f}; here {losses}",
        flush=True,
    )
    return passed


def main():
    data = pathlib.Path(os.environ.get("GNMR_DATA_DIR") or "/nonexistent")
    absent = [name for entry in MODELS for name in entry[:2] if not (data / name).exists()]
    if absent or not (data / TEXT).exists():
        print("skipped: GNMR_DATA_DIR is not a folder with", ", ".join([*absent, TEXT]))
        return 77
    passed = True
    for entry in MODELS:
        with tempfile.TemporaryDirectory() as folder:
            passed &= compare(sys.argv[1], pathlib.Path(folder), data, *entry)
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
