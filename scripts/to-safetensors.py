#!/usr/bin/env python3
"""Converts a pickled PyTorch checkpoint (.pth, .pt, .bin) to safetensors.

Needs PyTorch and nothing else. Nothing in the file is executed: torch.load(weights_only=True).
Looks inside the wrappers people save ("state_dict", "model", ...), and takes off prefixes that
DataParallel ("module.") and torch.compile ("_orig_mod.") add.

    scripts/to-safetensors.py resnet50.pth [resnet50.safetensors]
"""

import argparse
import json
import os
import pathlib
import struct
import sys

try:
    import torch
except ImportError:
    sys.exit("to-safetensors.py needs PyTorch: pip install torch")

WRAPPERS = ("model_state_dict", "state_dict", "model_state", "model", "net")
PREFIXES = ("module.", "_orig_mod.")
DTYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}


def state_dict_in(content):
    """The dictionary of tensors inside whatever was saved."""
    while isinstance(content, dict):
        inner = next((content[k] for k in WRAPPERS if isinstance(content.get(k), dict)), None)
        if inner is None:
            break
        content = inner
    tensors = {}
    if isinstance(content, dict):
        tensors = {k: v for k, v in content.items() if isinstance(v, torch.Tensor)}
    if not tensors:
        sys.exit("to-safetensors: no dictionary of tensors was found in the file")
    left_out = [str(k) for k in content if k not in tensors]
    if left_out:
        print("left out, not tensors: " + ", ".join(left_out), file=sys.stderr)
    return tensors


def without_prefixes(tensors):
    for _ in PREFIXES:
        for prefix in PREFIXES:
            if all(name.startswith(prefix) for name in tensors):
                tensors = {name[len(prefix):]: value for name, value in tensors.items()}
    return tensors


def raw_bytes(tensor):
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""


def write(path, tensors):
    header = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, tensor in tensors.items():
        if tensor.dtype not in DTYPES:
            sys.exit(f"to-safetensors: tensor {name} has dtype {tensor.dtype}, which is not supported")
        end = at + tensor.numel() * tensor.element_size()
        header[name] = {
            "dtype": DTYPES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [at, end],
        }
        at = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    temporary = path.with_name(path.name + ".tmp")
    with open(temporary, "wb") as out:
        out.write(struct.pack("<Q", len(text)))
        out.write(text)
        for tensor in tensors.values():
            out.write(raw_bytes(tensor))
    os.replace(temporary, path)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("input", type=pathlib.Path)
    parser.add_argument("output", type=pathlib.Path, nargs="?",
                        help="default: the input's name with .safetensors")
    args = parser.parse_args()
    output = args.output or args.input.with_suffix(".safetensors")
    try:
        content = torch.load(args.input, map_location="cpu", weights_only=True)
    except OSError as error:
        sys.exit(f"to-safetensors: {args.input} cannot be read: {error.strerror}")
    except Exception:  # torch raises a dozen kinds, each with advice over many lines
        sys.exit(f"to-safetensors: {args.input} is no PyTorch file, or holds Python objects other "
                 "than tensors, which are never loaded: they could run code")
    tensors = without_prefixes(state_dict_in(content))
    write(output, tensors)
    print(f"{output}: {len(tensors)} tensors, {sum(t.numel() for t in tensors.values()):,} values")


if __name__ == "__main__":
    main()
