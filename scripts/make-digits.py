#!/usr/bin/env python3
"""Makes data/digits from the copy of the UCI digits that scikit-learn ships (see its SOURCE.md).

Usage: python3 scripts/make-digits.py FOLDER      (needs scikit-learn; the result is in the repository)
"""

import pathlib
import struct
import sys
import zlib

from sklearn.datasets import load_digits

VALIDATION = 360  # the last images in the file's order, which roughly follows the writers


def png(rows):
    """An 8-bit grayscale PNG of equally long rows of bytes."""

    def chunk(kind, data):
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    header = struct.pack(">IIBBBBB", len(rows[0]), len(rows), 8, 0, 0, 0, 0)
    pixels = zlib.compress(b"".join(b"\0" + row for row in rows), 9)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


def main():
    out = pathlib.Path(sys.argv[1])
    digits = load_digits()
    first_validation = len(digits.images) - VALIDATION
    for number, (image, label) in enumerate(zip(digits.images, digits.target)):
        part = "val" if number >= first_validation else "train"
        folder = out / part / str(label)
        folder.mkdir(parents=True, exist_ok=True)
        # 0..16 inked pixels of a 4x4 block become 0..255.
        rows = [bytes(round(value * 255 / 16) for value in row) for row in image]
        (folder / f"{number:04d}.png").write_bytes(png(rows))


if __name__ == "__main__":
    main()
