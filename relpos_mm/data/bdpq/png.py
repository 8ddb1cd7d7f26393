"""A PNG writer whose bytes depend on the pixels alone."""

from __future__ import annotations

import struct
import zlib

import numpy as np

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_STORED_MAX = 0xFFFF
_COLOUR_TYPE = {1: 0, 3: 2}


def encode_png(picture: np.ndarray) -> bytes:
    """Encodes a grey (H, W) or RGB (H, W, 3) uint8 picture, uncompressed.

    Compressed bytes differ between zlib versions and its replacements, and so would every checksum
    of the data set. Deflate's "stored" blocks are laid out here, and CRC-32 and Adler-32 are fixed
    by their standards; pictures of this size take little room anyway and load faster.

    Raises:
        ValueError: for another dtype or shape.
    """
    if picture.dtype != np.uint8 or picture.ndim not in (2, 3):
        raise ValueError(
            f"a uint8 picture of 2 or 3 axes is needed, got {picture.dtype} {picture.shape}"
        )
    height, width = picture.shape[:2]
    rows = picture.reshape(height, -1)
    colour = _COLOUR_TYPE[rows.shape[1] // width]
    lines = np.hstack([np.zeros((height, 1), np.uint8), rows]).tobytes()
    header = struct.pack(">IIBBBBB", width, height, 8, colour, 0, 0, 0)
    return (
        _SIGNATURE
        + _chunk(b"IHDR", header)
        + _chunk(b"IDAT", _stored(lines))
        + _chunk(b"IEND", b"")
    )


def _chunk(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


def _stored(payload: bytes) -> bytes:
    """A zlib stream (RFC 1950) of stored deflate blocks (RFC 1951, section 3.2.4)."""
    blocks = [b"\x78\x01"]
    for start in range(0, len(payload), _STORED_MAX):
        block = payload[start : start + _STORED_MAX]
        last = start + _STORED_MAX >= len(payload)
        blocks.append(struct.pack("<BHH", last, len(block), len(block) ^ 0xFFFF) + block)
    return b"".join(blocks) + struct.pack(">I", zlib.adler32(payload))
