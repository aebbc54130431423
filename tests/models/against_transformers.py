# SPDX-License-Identifier: Apache-2.0
"""Compares logits, loss and every gradient with transformers' LlamaForCausalLM, in both directions of loading.

    against_transformers.py MODELS_PROBE

Exit code 0: equal within 1e-5 of each tensor's largest magnitude; 1: not; 77: torch, transformers or safetensors is
not installed.
"""

import os
import pathlib
import subprocess
import sys
import tempfile

os.environ.setdefault("HF_HUB_OFFLINE", "1")
try:
    import torch
    from safetensors.torch import load_file, save_file
    from transformers import LlamaConfig, LlamaForCausalLM
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

TOLERANCE = 1e-5
SMALL = dict(
    vocab_size=97,
    hidden_size=48,
    intermediate_size=80,
    num_hidden_layers=3,
    num_attention_heads=6,
    num_key_value_heads=6,
    max_position_embeddings=64,
    rms_norm_eps=1e-5,
)
CASES = {
    "plain": {},
    "grouped queries": dict(num_key_value_heads=2),
    "one key-value head": dict(num_key_value_heads=1),
    "tied head": dict(tie_word_embeddings=True, num_key_value_heads=3),
    "biases": dict(attention_bias=True, mlp_bias=True, num_key_value_heads=2),
    "wide heads, another theta": dict(head_dim=16, rope_parameters={"rope_type": "default", "rope_theta": 500000.0}),
}


def make_reference(changes, seed):
    torch.manual_seed(seed)
    model = LlamaForCausalLM(LlamaConfig(**{**SMALL, **changes}))
    with torch.no_grad():
        # Norms and biases begin as ones and zeros, which would hide that they are left out.
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.randn_like(parameter) * 0.1)
            else:
                parameter.mul_(5)
    return model


def make_batch(seed, vocabulary, positions=33):
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(vocabulary, (4, positions), generator=generator)
    targets = torch.randint(vocabulary, (4, positions), generator=generator)
    targets[0, :7] = -100
    return {"tokens": tokens, "targets": targets}


def reference_results(model, batch):
    model.zero_grad()
    logits = model(batch["tokens"]).logits
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch["targets"].flatten())
    loss.backward()
    results = {name: parameter.grad for name, parameter in model.named_parameters()}
    return {**results, "logits": logits.detach(), "loss": loss.detach()}


def difference(ours, theirs):
    """The largest difference, as a share of the largest magnitude; and what differs most."""
    if set(ours) != set(theirs):
        sys.exit(f"names differ: {sorted(set(ours) ^ set(theirs))}")
    shares = {name: ((ours[name] - theirs[name]).abs().max() / theirs[name].abs().max()).item() for name in ours}
    worst = max(shares, key=shares.get)
    return shares[worst], worst


def same_bits(one, other):
    return set(one) == set(other) and all(torch.equal(one[name], other[name]) for name in one)


def check(what, passed):
    print(f"{'equal' if passed else 'DIFFERENT'}: {what}", flush=True)
    return passed


def compare_case(probe, folder, name, changes, seed):
    """A model of transformers in the probe; that model saved by the probe, in transformers."""
    model = make_reference(changes, seed)
    model.save_pretrained(folder / "theirs", max_shard_size="20KB" if seed % 2 else "5GB")
    batch = make_batch(seed, SMALL["vocab_size"])
    save_file(batch, folder / "batch.safetensors")
    theirs = reference_results(model, batch)

    def run(model_folder, *options):
        out = folder / "results.safetensors"
        subprocess.run([probe, "gradients", model_folder, folder / "batch.safetensors", out, *options], check=True)
        return {key: value.clone() for key, value in load_file(out).items()}

    ours = run(folder / "theirs")
    share, worst = difference(ours, theirs)
    passed = check(f"{name}: {len(ours)} tensors, at most {share:.1e} ({worst})", share < TOLERANCE)
    passed &= check(f"{name}: bit for bit with recomputation", same_bits(ours, run(folder / "theirs", "recompute")))
    for file_bytes in ["1000000000", "30000"]:
        subprocess.run([probe, "save", folder / "theirs", folder / "ours", "weights", file_bytes], check=True)
        passed &= check(f"{name}: has checksums", (folder / "ours" / "checksums.json").is_file())
        back = LlamaForCausalLM.from_pretrained(folder / "ours", dtype=torch.float32)
        passed &= check(
            f"{name}: saved here with files of {file_bytes} bytes, loaded there",
            same_bits(dict(model.state_dict()), dict(back.state_dict())),
        )
        passed &= check(
            f"{name}: logits of the loaded one", torch.equal(back(batch["tokens"]).logits, theirs["logits"])
        )
    return passed


def compare_initial(probe, folder):
    """A model that the probe initialised: loads, and has the deviations that it should."""
    subprocess.run([probe, "save", "nano", folder / "nano", "7"], check=True)
    model = LlamaForCausalLM.from_pretrained(folder / "nano")
    layers = model.config.num_hidden_layers
    passed = True
    for name, parameter in model.named_parameters():
        if parameter.dim() == 1:
            passed &= bool((parameter == 1).all())
            continue
        usual = 0.02 / (2 * layers) ** 0.5 if name.endswith(("o_proj.weight", "down_proj.weight")) else 0.02
        passed &= abs(parameter.std().item() / usual - 1) < 0.03 and abs(parameter.mean().item()) < usual * 0.05
    return check("nano: initial weights", passed)


def main():
    probe = sys.argv[1]
    torch.set_num_threads(2)
    passed = True
    for seed, (name, changes) in enumerate(CASES.items()):
        with tempfile.TemporaryDirectory() as folder:
            passed &= compare_case(probe, pathlib.Path(folder), name, changes, seed)
    with tempfile.TemporaryDirectory() as folder:
        passed &= compare_initial(probe, pathlib.Path(folder))
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
