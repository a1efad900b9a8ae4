# SPDX-FileCopyrightText: The Tetrad Authors
# SPDX-License-Identifier: Apache-2.0
"""NVFP4: quantising, dequantising, packing, and the two layouts of scales.

A value is ``code * scale * factor``. Codes are E2M1 (0, 0.5, 1, 1.5, 2, 3, 4, 6 and their
negatives), two per byte, the low nibble holding even k. Scales are UE4M3 bytes, one per
16 codes along K. The factor is FP32: what Tetrad calls alpha, times a factor of the row
where there is one.

Everything here gives the bits that the daemon's own code gives (kernels/nvfp4.h,
kernels/quantize.h); tests compare them with what that code wrote. What cannot be
quantised (NaN, infinity, a factor that is no normal positive number) is refused with row
and column by :class:`tetrad.InvalidArgument`."""
from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from . import bf16
from .errors import refused

SCALE_BLOCK = 16  # codes along K that share one scale
K_MULTIPLE = 32
E2M1_MAX = 6.0
UE4M3_MAX = 448.0
LINEAR, BLOCKED = "linear", "blocked"

U8 = npt.NDArray[np.uint8]
F32 = npt.NDArray[np.float32]

_LEAST_NORMAL = np.finfo(np.float32).tiny
_MAX = np.finfo(np.float32).max
_MAGNITUDES = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)
_CODES = np.concatenate([_MAGNITUDES, -_MAGNITUDES])
_CODES.flags.writeable = False
_HIGH, _SIGN = np.uint8(4), np.uint8(3)  # shifts
_AT_ONCE = 1 << 20  # values quantised at a time: temporaries are several times as large as these


def _ue4m3_values() -> F32:
    byte = np.arange(128)
    exponent, mantissa = byte >> 3, byte & 7
    values = np.where(exponent == 0, np.ldexp(mantissa / 8.0, -6), np.ldexp(1 + mantissa / 8.0, exponent - 7))
    bits = values.astype(np.float32).view(np.uint32)
    bits[0x7F] = 0x7FFFFFFF
    out: F32 = np.tile(bits.view(np.float32), 2)  # bit 7 is ignored
    return out


_SCALES = _ue4m3_values()
_SCALES.flags.writeable = False


def decode_e2m1(codes: npt.ArrayLike) -> F32:
    """The values of 4-bit codes (uint8, any shape); bits above the low four are ignored."""
    values: F32 = _CODES[np.asarray(codes, np.uint8) & 15]
    return values


def decode_ue4m3(scales: npt.ArrayLike) -> F32:
    """The values of scale bytes (any shape); bit 7 is ignored, 0x7F is NaN."""
    values: F32 = _SCALES[np.asarray(scales, np.uint8)]
    return values


def encode_e2m1(x: npt.ArrayLike) -> U8:
    """The nearest 4-bit codes of FP32 numbers, ties to even, saturating at 6; NaN gives 0."""
    values = np.asarray(x, np.float32)
    with np.errstate(invalid="ignore"):
        code = _nearest_magnitude(np.abs(values), np.float32(1)) | np.left_shift(np.signbit(values).astype(np.uint8), _SIGN)
    return np.where(np.isnan(values), np.uint8(0), code)


def encode_ue4m3(x: npt.ArrayLike) -> U8:
    """The nearest scale bytes of FP32 numbers, ties to even, saturating at 448; what is
    negative gives 0, NaN 0x7F."""
    values = np.ascontiguousarray(x, np.float32).reshape(-1)
    bits = values.view(np.uint32)
    with np.errstate(invalid="ignore", over="ignore"):
        # Below 2^-6 a multiple of 2^-9, which the FP32 adder rounds to.
        small = ((values + np.float32(2**14)).view(np.uint32) - np.float32(2**14).view(np.uint32)) & 0xFF
        normal = (((bits + (0x7FFFF + ((bits >> 20) & 1)).astype(np.uint32)) >> 20) - (120 << 3)) & 0xFF
        byte = np.where(values < np.float32(2**-6), small, normal)
        byte = np.where(values >= UE4M3_MAX, 0x7E, byte)
    byte = np.where(bits >> 31 != 0, 0, byte)
    byte = np.where(np.isnan(values), 0x7F, byte)
    return byte.astype(np.uint8).reshape(np.shape(x))


def pack(codes: npt.ArrayLike) -> U8:
    """4-bit codes ``[..., K]`` (one a byte, K even) to ``[..., K/2]`` bytes, even k in the low nibble."""
    each = np.asarray(codes, np.uint8) & 15
    if each.ndim == 0 or each.shape[-1] % 2:
        raise refused("codes", f"shape {each.shape}", "an even number of codes along the last axis")
    both: U8 = each[..., 0::2] | np.left_shift(each[..., 1::2], _HIGH)
    return both


def unpack(packed: npt.ArrayLike) -> U8:
    """``[..., K/2]`` bytes to 4-bit codes ``[..., K]``, one a byte: what :func:`pack` undoes."""
    both = np.asarray(packed, np.uint8)
    codes: U8 = np.stack([both & 15, both >> 4], axis=-1).reshape(*both.shape[:-1], 2 * both.shape[-1])
    return codes


def plane_bytes(layout: str, rows: int, k: int) -> int:
    """Bytes of the scales of one ``[rows, k]`` matrix in a layout."""
    if _checked_layout(layout) == LINEAR:
        return rows * (k // SCALE_BLOCK)
    return -(-rows // 128) * -(-k // 64) * 512


def to_blocked(scales: npt.ArrayLike) -> U8:
    """Linear scales ``[rows, K/16]`` to one blocked plane, flat: tiles of 128 rows x 4 blocks,
    512 bytes each, in which row r, block j lies at ``r % 32 * 16 + r % 128 // 32 * 4 + j % 4``.
    Padding is zero."""
    linear = np.asarray(scales, np.uint8)
    if linear.ndim != 2:
        raise refused("scales", f"shape {linear.shape}", "[rows, K/16]", reason="SIZE_MISMATCH")
    rows, blocks = linear.shape
    padded = np.zeros((-(-rows // 128) * 128, -(-blocks // 4) * 4), np.uint8)
    padded[:rows, :blocks] = linear
    tiles = padded.reshape(padded.shape[0] // 128, 4, 32, padded.shape[1] // 4, 4)
    return np.ascontiguousarray(tiles.transpose(0, 3, 2, 1, 4)).reshape(-1)


def to_linear(plane: npt.ArrayLike, rows: int, k: int) -> U8:
    """One blocked plane (flat) of a ``[rows, k]`` matrix to linear scales ``[rows, k/16]``;
    padding is not looked at."""
    flat = np.asarray(plane, np.uint8).reshape(-1)
    wanted = plane_bytes(BLOCKED, rows, k)
    if flat.size != wanted:
        raise refused("plane", f"{flat.size} bytes", f"{wanted} for {rows} rows and k={k}", reason="SIZE_MISMATCH")
    tiles = flat.reshape(-(-rows // 128), -(-k // 64), 32, 4, 4).transpose(0, 3, 2, 1, 4)
    return np.ascontiguousarray(tiles.reshape(-(-rows // 128) * 128, -(-k // 64) * 4)[:rows, : k // SCALE_BLOCK])


@dataclasses.dataclass(frozen=True)
class Quantized:
    """A matrix ``[rows, K]`` in NVFP4: value = code * scale * global_scale * row_scale[row].

    codes: uint8 ``[rows, K/2]``, two to a byte. scales: uint8, ``[rows, K/16]`` if linear,
    flat planes if blocked. global_scale: FP32. row_scale: FP32 ``[rows]``, or None for 1.
    As activations of ``execute``, global_scale is sent as alpha of every group and row_scale
    as the factors of rows."""

    codes: U8
    scales: U8
    global_scale: float = 1.0
    row_scale: F32 | None = None
    layout: str = LINEAR

    @property
    def rows(self) -> int:
        return int(self.codes.shape[0])

    @property
    def k(self) -> int:
        return 2 * int(self.codes.shape[1])

    def blocked(self, m: Sequence[int] | None = None) -> Quantized:
        """The same with blocked scales: a plane for each group of ``m`` rows, one after the
        other, as the daemon wants stacked activations; None: one plane."""
        if self.layout != LINEAR:
            raise refused("layout", self.layout, LINEAR, reason="FIELD_CONFLICT")
        counts = [self.rows] if m is None else [int(each) for each in m]
        if min(counts, default=0) < 0 or sum(counts) != self.rows:
            raise refused("m", counts, f"counts of {self.rows} rows in total", reason="SIZE_MISMATCH")
        ends = np.cumsum([0, *counts])
        planes = [to_blocked(self.scales[a:b]) for a, b in zip(ends[:-1], ends[1:])]
        return dataclasses.replace(self, scales=np.concatenate(planes), layout=BLOCKED)


def row_scales(x: npt.ArrayLike) -> F32:
    """The factor of each row ``[rows]`` of ``[rows, K]`` that lets its largest magnitude meet
    6 * 448 under global scale 1: fl32(amax / 2688), at least the least normal number; 1 for zeros."""
    values = _float32(x)
    _check_finite(values, 0)
    amax = np.abs(values).max(axis=1, initial=0)
    return _meeting_the_top(amax)


def global_scale(x: npt.ArrayLike) -> float:
    """The one factor for all of ``[rows, K]`` that lets the largest magnitude meet 6 * 448."""
    values = _float32(x)
    _check_finite(values, 0)
    return float(_meeting_the_top(np.abs(values).max(initial=0)))


def quantize(x: npt.ArrayLike, global_scale: float = 1.0, row_scale: npt.ArrayLike | None = None) -> Quantized:
    """Quantises ``[rows, K]``, K a multiple of 32: FP32, FP16, or BF16 as uint16 bits.

        factor = fl32(global_scale * row_scale[row])
        scale  = nearest UE4M3 of fl32(amax / fl32(6 * factor)), amax over each 16 along K
        code   = the E2M1 value nearest x / (scale * factor), ties to even, decided exactly

    A scale saturates at 448 and a code at 6; a block whose scale rounds to 0 is all zeros.
    Choose the factor by :func:`global_scale`, or per row by :func:`row_scales`."""
    values = _float32(x)
    rows, k = values.shape
    one = np.float32(global_scale)
    if not (np.isfinite(one) and one >= _LEAST_NORMAL):
        raise refused("global_scale", one, "a normal positive FP32 number")
    scale_of_row = None if row_scale is None else np.asarray(row_scale, np.float32).reshape(-1)
    if scale_of_row is not None and scale_of_row.size != rows:
        raise refused("row_scale", f"{scale_of_row.size} values", f"one for each of {rows} rows",
                      reason="SIZE_MISMATCH")
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        factor = np.full(rows, one) if scale_of_row is None else one * scale_of_row
        sixfold = np.float32(E2M1_MAX) * factor
        bad = ~((factor >= _LEAST_NORMAL) & np.isfinite(factor) & np.isfinite(sixfold))
    # What is wrong in the first row is told, and in that the factor first, as the daemon does.
    sound = int(np.argmax(bad)) if bad.any() else rows
    codes = np.empty((rows, k // 2), np.uint8)
    scales = np.empty((rows, k // SCALE_BLOCK), np.uint8)
    step = max(1, _AT_ONCE // k)
    for begin in range(0, sound, step):
        part = slice(begin, min(begin + step, sound))
        codes[part], scales[part] = _quantize_rows(values[part], factor[part], sixfold[part], begin)
    if sound < rows:
        raise refused("global_scale * row_scale", f"row {sound}: {factor[sound]}",
                      f"a normal positive FP32 number of at most {_MAX / np.float32(E2M1_MAX)}")
    return Quantized(codes, scales, float(one), scale_of_row)


def dequantize(q: Quantized) -> F32:
    """The values ``[rows, K]`` of a matrix with linear scales or one blocked plane:
    fl32(code * scale * fl32(global_scale * row_scale)); a NaN scale gives NaN."""
    scales = q.scales if q.layout == LINEAR else to_linear(q.scales, q.rows, q.k)
    factor = np.full(q.rows, np.float32(q.global_scale))
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        if q.row_scale is not None:
            factor = factor * np.asarray(q.row_scale, np.float32)
        values = decode_e2m1(unpack(q.codes)) * np.repeat(decode_ue4m3(scales), SCALE_BLOCK, axis=1)
        out: F32 = values * factor[:, None]
    return out


@dataclasses.dataclass(frozen=True)
class QuantizedWeights:
    """Weights of G groups, as ``Client.upload`` takes them: codes uint8 ``[G, N, K/2]``, linear
    scales uint8 ``[G, N, K/16]``, alpha FP32 ``[G]``."""

    codes: U8
    scales: U8
    alpha: F32


def quantize_weights(x: npt.ArrayLike) -> QuantizedWeights:
    """Quantises ``[G, N, K]`` (types as :func:`quantize`), each group under its own global scale."""
    each = np.asarray(x)
    if each.ndim != 3:
        raise refused("x", f"shape {each.shape}", "[G, N, K]", reason="SIZE_MISMATCH")
    groups = [quantize(group, global_scale(group)) for group in each]
    return QuantizedWeights(np.stack([q.codes for q in groups]), np.stack([q.scales for q in groups]),
                            np.array([q.global_scale for q in groups], np.float32))


def _checked_layout(layout: str) -> str:
    if layout not in (LINEAR, BLOCKED):
        raise refused("layout", repr(layout), f"{LINEAR!r} or {BLOCKED!r}")
    return layout


def _float32(x: npt.ArrayLike) -> F32:
    values = np.asarray(x)
    if values.ndim != 2 or values.shape[1] == 0 or values.shape[1] % K_MULTIPLE:
        raise refused("x", f"shape {values.shape}", f"[rows, K] with K a positive multiple of {K_MULTIPLE}",
                      reason="SIZE_MISMATCH")
    if values.dtype == np.uint16:
        return bf16.decode(values)
    if values.dtype not in (np.float32, np.float16):
        raise refused("x", f"dtype {values.dtype}", "float32, float16, or uint16 as BF16 bits")
    return values.astype(np.float32, copy=False)


def _check_finite(values: F32, first_row: int) -> None:
    finite = np.isfinite(values)
    if not finite.all():
        row, column = (int(each) for each in np.argwhere(~finite)[0])
        raise refused("x", f"row {first_row + row} column {column}: {values[row, column]}", "a finite number")


def _meeting_the_top(amax: npt.NDArray[np.float32] | np.float32) -> F32:
    scale = np.maximum(amax / np.float32(E2M1_MAX * UE4M3_MAX), _LEAST_NORMAL)
    return np.where(amax == 0, np.float32(1), scale).astype(np.float32)


def _nearest_magnitude(magnitude: npt.NDArray[np.floating[npt.NBitBase]], unit: object) -> U8:
    """The code nearest magnitude / unit. In FP64 the products are exact; a tie goes to the code
    with an even mantissa bit, hence the alternation."""
    unit = np.asarray(unit)
    code = (magnitude > 0.25 * unit).astype(np.uint8)
    code += magnitude >= 0.75 * unit
    code += magnitude > 1.25 * unit
    code += magnitude >= 1.75 * unit
    code += magnitude > 2.5 * unit
    code += magnitude >= 3.5 * unit
    code += magnitude > 5.0 * unit
    return code


def _quantize_rows(values: F32, factor: F32, sixfold: F32, first_row: int) -> tuple[U8, U8]:
    rows, k = values.shape
    blocks = np.abs(values).reshape(rows, k // SCALE_BLOCK, SCALE_BLOCK)
    # NaN is the maximum of whatever holds one, and neither it nor infinity passes here.
    amax = blocks.max(axis=2)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        quotient = amax / sixfold[:, None]
    if not np.isfinite(quotient).all():
        row, block = (int(each) for each in np.argwhere(~np.isfinite(quotient))[0])
        at = slice(block * SCALE_BLOCK, (block + 1) * SCALE_BLOCK)
        if not np.isfinite(values[row, at]).all():
            column = at.start + int(np.argmax(~np.isfinite(values[row, at])))
            raise refused("x", f"row {first_row + row} column {column}: {values[row, column]}", "a finite number")
        column = at.start + int(np.argmax(blocks[row, block]))
        raise refused("x", f"row {first_row + row} column {column}: {amax[row, block]} / (6 * {factor[row]})",
                      "a quotient below 2^128; the scale is too small")
    scales = encode_ue4m3(quotient)
    unit = decode_ue4m3(scales).astype(np.float64) * factor[:, None].astype(np.float64)
    code = _nearest_magnitude(blocks.astype(np.float64), unit[:, :, None])
    code |= np.left_shift(np.signbit(values).reshape(blocks.shape).astype(np.uint8), _SIGN)
    code[scales == 0] = 0
    return pack(code.reshape(rows, k)), scales
