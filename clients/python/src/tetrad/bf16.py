# SPDX-FileCopyrightText: The Tetrad Authors
# SPDX-License-Identifier: Apache-2.0
"""BF16 as bit patterns.

NumPy has no such type, so an array of BF16 is here one of ``uint16`` that holds the
upper halves of FP32 numbers. Bits equal those of the daemon (kernels/float16.h)."""
from __future__ import annotations

import numpy as np
import numpy.typing as npt

CANONICAL_NAN = 0x7FFF


def encode(x: npt.ArrayLike) -> npt.NDArray[np.uint16]:
    """FP32 numbers of any shape to BF16 bits: nearest, ties to even; every NaN becomes 0x7FFF."""
    values = np.asarray(x, np.float32)
    bits = values.view(np.uint32) if values.ndim else values.reshape(1).view(np.uint32)[0]
    rounded = ((bits.astype(np.uint64) + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return np.where(np.isnan(values), np.uint16(CANONICAL_NAN), rounded)


def decode(bits: npt.ArrayLike) -> npt.NDArray[np.float32]:
    """BF16 bits of any shape to FP32, exactly; every NaN becomes 0x7FFFFFFF."""
    wide = np.atleast_1d(np.asarray(bits, np.uint16)).astype(np.uint32) << 16
    wide[(wide & 0x7FFFFFFF) > 0x7F800000] = 0x7FFFFFFF
    return wide.view(np.float32).reshape(np.shape(bits))
