# SPDX-FileCopyrightText: The Tetrad Authors
# SPDX-License-Identifier: Apache-2.0
"""Arrays to requests and responses to arrays.

What is wrong with shapes is refused here, before anything is sent, as
:class:`tetrad.InvalidArgument` with field, value and limit; values are the daemon's to
check. Tensors of PyTorch are taken wherever arrays are, by what they look like: this
package never imports it."""
from __future__ import annotations

import bisect
import dataclasses
import sys
from collections.abc import Iterator, Sequence
from typing import Any, Union

import numpy as np
import numpy.typing as npt

from . import nvfp4
from .errors import Error, make_error, refused
from ._options import check_key
from .v1 import gemm_pb2, types_pb2, weights_pb2

Array = npt.NDArray[Any]
# Arrays, or tensors of PyTorch, of which nothing is known here.
ArrayLike = Any

_ACTIVATIONS = {"nvfp4": types_pb2.ACTIVATION_TYPE_NVFP4, "fp16": types_pb2.ACTIVATION_TYPE_FP16,
                "bf16": types_pb2.ACTIVATION_TYPE_BF16}
_OUTPUTS: dict[str, tuple[Any, Any]] = {
    "fp16": (types_pb2.OUTPUT_TYPE_FP16, np.dtype("<f2")), "bf16": (types_pb2.OUTPUT_TYPE_BF16, np.dtype("<u2")),
    "fp32": (types_pb2.OUTPUT_TYPE_FP32, np.dtype("<f4"))}
_LAYOUTS = {nvfp4.LINEAR: types_pb2.SCALE_LAYOUT_LINEAR, nvfp4.BLOCKED: types_pb2.SCALE_LAYOUT_BLOCKED}
_LAYOUT_NAMES = {types_pb2.SCALE_LAYOUT_UNSPECIFIED: nvfp4.LINEAR, **{v: k for k, v in _LAYOUTS.items()}}
_PRIORITIES = {"high": types_pb2.PRIORITY_HIGH, "normal": types_pb2.PRIORITY_NORMAL, "low": types_pb2.PRIORITY_LOW}


@dataclasses.dataclass(frozen=True)
class Weights:
    """Registered weights.

    groups: (N, K) of each group. scale_layout: of the planes as uploaded. bytes: device
    memory held. alpha: FP32 per group; empty if all are 1. input_scale: per group, a factor,
    where the checkpoint has one. notes: what a loader noticed and is no error."""

    name: str
    version: int
    sealed: bool
    groups: tuple[tuple[int, int], ...]
    scale_layout: str
    bytes: int
    source: str
    alpha: tuple[float, ...] = ()
    input_scale: tuple[float, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def ref(self) -> str:
        """``name@version``, which names these and never others."""
        return f"{self.name}@{self.version}"


@dataclasses.dataclass(frozen=True)
class Offsets:
    """Rows per group by offsets that the device reads: group g has the rows values[g] up to
    values[g + 1] of a stack of ``capacity`` rows. values: int32 ``[G + 1]``, from 0, never falling."""

    values: npt.ArrayLike
    capacity: int


@dataclasses.dataclass(frozen=True)
class Counts:
    """Rows per group by counts that the device reads: group g has the first values[g] of its
    ``rows_per_group`` reserved rows. values: int32 ``[G]``."""

    values: npt.ArrayLike
    rows_per_group: int


# How many rows of the stack each group has: counts that are part of the plan, or counts for the device.
Rows = Union[Sequence[int], Offsets, Counts]


@dataclasses.dataclass(frozen=True)
class Timings:
    """Microseconds: admitted until handed to the device; handing over; on the device; admitted
    until completion was seen. share: the plan's floor over device_us."""

    queued_us: float
    launch_us: float
    device_us: float
    total_us: float
    share: float


@dataclasses.dataclass(frozen=True)
class Result:
    """The outcome of a grouped GEMM.

    groups: of each group ``[m, n]``: float16, float32, or uint16 bits for BF16; tensors on the
    CPU (BF16 as torch.bfloat16) if the activations were a tensor. Read-only unless tensors.
    weights: ``name@version`` used. floor_us: what the device needs at best."""

    groups: list[Any] = dataclasses.field(repr=False)
    timings: Timings
    weights: str
    kernel: str
    floor_us: float
    stack: Any = dataclasses.field(repr=False, default=None)

    @property
    def output(self) -> Any:
        """All groups as one ``[rows, n]``, where all have one n. With device-side rows the whole
        capacity; rows that are not live are 0."""
        if self.stack is None:
            raise ValueError("the groups have different n: use groups")
        return self.stack


@dataclasses.dataclass(frozen=True)
class Request:
    """One grouped GEMM, C_g = fl32(fl32(A_g B_g^T * alpha_g) * row_scale), for all groups g.

    activations: the rows of all groups, stacked: ``[rows, K]`` of float16; uint16, which are the
        bits of BF16 (:mod:`tetrad.bf16`); a PyTorch tensor of float16 or bfloat16; or
        :class:`tetrad.nvfp4.Quantized`.
    weights: :class:`Weights` (exactly those), ``name`` (the newest sealed version), ``name@version``.
    m: rows of each group, G of them, adding up to the rows; or :class:`Offsets`, :class:`Counts`.
    output_type: "fp16", "bf16" or "fp32"; None: that of 16-bit activations, else "bf16".
    alpha: FP32 ``[G]``, multiplied with the weights' own; None: 1, or the global scale of Quantized.
    row_scale: FP32 ``[rows]``; None: none, or that of Quantized.
    priority: "high", "normal" or "low", among requests that wait.
    id, timeout: in an execute_stream only: a name for its answer (None: counted up from 0), and
        seconds from its arrival until it must have run."""

    activations: ArrayLike
    weights: Weights | str
    m: Rows
    output_type: str | None = None
    alpha: npt.ArrayLike | None = None
    row_scale: npt.ArrayLike | None = None
    priority: str = "normal"
    id: int | None = None
    timeout: float | None = None


@dataclasses.dataclass(frozen=True)
class Answer:
    """What became of a request: a result or an error. id: that of the request in its stream."""

    id: int
    value: Result | None
    error: Error | None

    def result(self) -> Result:
        """The result; raises the error if there is one."""
        if self.error is not None:
            raise self.error
        assert self.value is not None
        return self.value


def is_tensor(x: object) -> bool:
    return type(x).__module__.partition(".")[0] == "torch" and hasattr(x, "detach")


def as_numpy(x: ArrayLike) -> Array:
    """A tensor as an array on the CPU: BF16 as uint16 bits, 8-bit floats as bytes."""
    if not is_tensor(x):
        return np.asarray(x)
    torch: Any = sys.modules["torch"]
    tensor = x.detach().cpu().contiguous()
    if tensor.dtype == torch.bfloat16:
        return np.asarray(tensor.view(torch.int16).numpy()).view(np.uint16)
    if str(tensor.dtype).startswith("torch.float8"):
        tensor = tensor.view(torch.uint8)
    return np.asarray(tensor.numpy())


def weights_of(info: weights_pb2.WeightsInfo, notes: Sequence[str] = ()) -> Weights:
    groups = tuple((each.n, each.k) for each in info.groups)
    if len(groups) == 1:
        groups *= max(1, info.group_count)
    return Weights(info.name, info.version, info.sealed, groups, _LAYOUT_NAMES.get(info.scale_layout, "packed"),
                   info.bytes, info.source, tuple(info.alpha), tuple(info.input_scale), tuple(notes))


class Encoded:
    """A request as it is sent, and how its response is read."""

    def __init__(self, request: Request, groups: Sequence[tuple[int, int]], plan: str = "") -> None:
        n_of_group = [n for n, _ in groups]
        k = groups[0][1]
        if any(each != k for _, each in groups):
            raise refused("weights", f"k of groups {sorted({each for _, each in groups})}",
                          "one K for all groups, as activations are one stack", reason="SHAPES_DIFFER")
        self.torch = sys.modules["torch"] if is_tensor(request.activations) else None
        kind, operands, rows = _activations(request, k, len(groups))
        self.type = request.output_type or (kind if kind != "nvfp4" else "bf16")
        # The rows of each group in the output, and how many of them are live.
        self.signature, self._spans = make_signature(request.m, kind, self.type, operands.pop("layout"), n_of_group)
        reserved = self._spans[-1][1] if not isinstance(request.m, Offsets) else request.m.capacity
        if isinstance(request.m, Counts):
            reserved = request.m.rows_per_group * len(groups)
        if rows != reserved:
            raise refused("m", f"{reserved} rows in total", f"{rows}, the rows of activations", reason="SIZE_MISMATCH")
        self._reserved = reserved
        row_scale = operands.pop("row_scale")
        self.signature.row_scale = row_scale is not None
        inline = gemm_pb2.InlineOperands(**operands)
        if row_scale is not None:
            inline.row_scale.extend(row_scale.tolist())
        if isinstance(request.m, (Offsets, Counts)):
            inline.m_values.extend(_integers("m.values", request.m.values))
        ref = request.weights.ref if isinstance(request.weights, Weights) else request.weights
        self.message = gemm_pb2.ExecuteRequest(inline_operands=inline, priority=_priority(request.priority))
        if plan:
            self.message.plan, self.message.weights = plan, ref
        else:
            self.signature.weights = ref
            self.message.signature.CopyFrom(self.signature)

    def decode(self, response: gemm_pb2.ExecuteResponse, groups: Sequence[tuple[int, int]]) -> Result | None:
        """None: the output is not of these shapes, so the weights were replaced by others."""
        dtype = _OUTPUTS[self.type][1]
        flat = np.frombuffer(response.output, dtype) if self.torch is None else self._tensor(response.output)
        n_of_group = [n for n, _ in groups]
        stack, parts = None, []
        if len(set(n_of_group)) == 1:
            if len(flat) != self._reserved * n_of_group[0] or len(groups) != len(self._spans):
                return None
            stack = flat.reshape(self._reserved, n_of_group[0])
            parts = [stack[begin:end] for begin, end in self._spans]
        else:
            at = 0
            for n, (begin, end) in zip(n_of_group, self._spans):
                parts.append(flat[at: at + (end - begin) * n].reshape(end - begin, n))
                at += (end - begin) * n
            if at != len(flat) or len(groups) != len(self._spans):
                return None
        t = response.timings
        return Result(parts, Timings(t.queued_us, t.launch_us, t.device_us, t.total_us, t.share), response.weights,
                      response.kernel, response.floor_us, stack)

    def _tensor(self, data: bytes) -> Any:
        torch: Any = self.torch
        dtype = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32}[self.type]
        return torch.frombuffer(bytearray(data), dtype=dtype) if data else torch.empty(0, dtype=dtype)


def make_signature(m: Rows, kind: str, output_type: str, layout: str,
                   n_of_group: Sequence[int]) -> tuple[types_pb2.Signature, list[tuple[int, int]]]:
    """The signature without its weights, and the live rows (begin, end) of each group."""
    groups = len(n_of_group)
    if kind not in _ACTIVATIONS:
        raise refused("activation_type", repr(kind), f"one of {', '.join(_ACTIVATIONS)}")
    if output_type not in _OUTPUTS:
        raise refused("output_type", repr(output_type), f"one of {', '.join(_OUTPUTS)}")
    signature = types_pb2.Signature(activation_type=_ACTIVATIONS[kind], output_type=_OUTPUTS[output_type][0])
    if kind == "nvfp4":
        signature.activation_scale_layout = _LAYOUTS[layout]
    if isinstance(m, (Offsets, Counts)):
        if len(set(n_of_group)) != 1:
            raise refused("m", type(m).__name__, "counts on the host, as the groups have different n")
        signature.group_form = types_pb2.GROUP_FORM_STACKED
        values = _integers("m.values", m.values)
        if isinstance(m, Offsets):
            _length("m.values", values, groups + 1, "offsets")
            signature.capacity.m_source, signature.capacity.rows = types_pb2.M_SOURCE_OFFSETS, m.capacity
            return signature, list(zip(values[:-1], values[1:]))
        _length("m.values", values, groups, "counts")
        signature.capacity.m_source, signature.capacity.rows = types_pb2.M_SOURCE_COUNTS, m.rows_per_group
        return signature, [(g * m.rows_per_group, g * m.rows_per_group + each) for g, each in enumerate(values)]
    counts = _integers("m", m)
    _length("m", counts, groups, "rows of each group")
    if min(counts) < 0:
        raise refused(f"m[{counts.index(min(counts))}]", min(counts), "at least 0")
    signature.exact.m.extend(counts)
    ends = np.cumsum([0, *counts]).tolist()
    return signature, list(zip(ends[:-1], ends[1:]))


def _activations(request: Request, k: int, groups: int) -> tuple[str, dict[str, Any], int]:
    """Type, fields of InlineOperands (with row_scale and layout apart), rows."""
    x = request.activations
    alpha, row_scale, layout = request.alpha, request.row_scale, nvfp4.LINEAR
    fields: dict[str, Any] = {}
    if isinstance(x, nvfp4.Quantized):
        kind, layout = "nvfp4", x.layout
        codes, scales = as_numpy(x.codes), as_numpy(x.scales)
        _matrix("activations.codes", codes, k // 2, "K/2", np.uint8)
        if scales.dtype != np.uint8:
            raise refused("activations.scales", f"dtype {scales.dtype}", "uint8")
        if layout == nvfp4.LINEAR and scales.shape != (len(codes), k // 16):
            raise refused("activations.scales", f"shape {scales.shape}", f"{(len(codes), k // 16)}",
                          reason="SIZE_MISMATCH")
        fields.update(activations=codes.tobytes(), activation_scales=scales.tobytes())
        rows = len(codes)
        if x.global_scale != 1:
            if alpha is not None:
                raise refused("alpha", "given", "None where activations have a global_scale", reason="FIELD_CONFLICT")
            alpha = np.full(groups, x.global_scale, np.float32)
        if x.row_scale is not None:
            if row_scale is not None:
                raise refused("row_scale", "given", "None where activations have one", reason="FIELD_CONFLICT")
            row_scale = x.row_scale
    else:
        values = as_numpy(x)
        if values.dtype not in (np.float16, np.uint16):
            raise refused("activations", f"dtype {values.dtype}",
                          "float16, uint16 (bits of BF16), a tensor of float16 or bfloat16, or nvfp4.Quantized")
        kind = "fp16" if values.dtype == np.float16 else "bf16"
        _matrix("activations", values, k, "K", values.dtype)
        fields["activations"] = values.astype(values.dtype.newbyteorder("<"), copy=False).tobytes()
        rows = len(values)
    if alpha is not None:
        factors = as_numpy(alpha).astype(np.float32).reshape(-1)
        _length("alpha", factors, groups, "a factor of each group")
        fields["alpha"] = factors.tolist()
    if row_scale is not None:
        row_scale = as_numpy(row_scale).astype(np.float32).reshape(-1)
        _length("row_scale", row_scale, rows, "a factor of each row")
    return kind, {**fields, "row_scale": row_scale, "layout": layout}, rows


def _matrix(field: str, values: Array, width: int, name: str, dtype: Any) -> None:
    if values.dtype != dtype:
        raise refused(field, f"dtype {values.dtype}", str(np.dtype(dtype)))
    if values.ndim != 2 or values.shape[1] != width:
        raise refused(field, f"shape {values.shape}", f"[rows, {name}] with {name} = {width}, as the weights have",
                      reason="SIZE_MISMATCH")


def _integers(field: str, values: object) -> list[int]:
    array = as_numpy(values)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise refused(field, f"shape {array.shape}, dtype {array.dtype}", "a list of whole numbers")
    out: list[int] = array.tolist()
    for i, each in enumerate(out):
        if not -(2**31) <= each < 2**31:
            raise refused(f"{field}[{i}]", each, "an int32")
    return out


def _length(field: str, values: Any, wanted: int, what: str) -> None:
    if len(values) != wanted:
        raise refused(field, f"{len(values)} values", f"{wanted}: {what}", reason="SIZE_MISMATCH")


def _priority(name: str) -> Any:
    if name not in _PRIORITIES:
        raise refused("priority", repr(name), f"one of {', '.join(_PRIORITIES)}")
    return _PRIORITIES[name]


def answer_error(answer: Any) -> Error:
    """The error inside an answer of a stream or of Wait."""
    return make_error(answer.code, answer.message, answer.details)


class Plane:
    """One operand of weights, codes or scales of all groups, as the bytes that are sent."""

    def __init__(self, parts: Sequence[Array]) -> None:
        self._parts = [np.ascontiguousarray(part).reshape(-1) for part in parts]
        self._begins = np.cumsum([0, *(len(part) for part in self._parts)]).tolist()
        self.size: int = self._begins[-1]

    def pieces(self, begin: int, size: int, most: int) -> Iterator[tuple[int, bytes]]:
        """(offset, bytes) of a range, in pieces of at most ``most`` bytes."""
        for offset in range(begin, begin + size, most):
            yield offset, self._bytes(offset, min(offset + most, begin + size))

    def _bytes(self, begin: int, end: int) -> bytes:
        first, last = bisect.bisect_right(self._begins, begin) - 1, bisect.bisect_left(self._begins, end)
        return b"".join(part[max(begin - at, 0): end - at].tobytes()
                        for part, at in zip(self._parts[first:last], self._begins[first:last]))


def weights_operands(name: str, codes: ArrayLike, scales: ArrayLike, alpha: ArrayLike | None, scale_layout: str,
                     seal: bool, upload_key: str) -> tuple[weights_pb2.UploadHeader, Plane, Plane]:
    """The header and operands of an upload; see ``Client.upload`` for the arguments."""
    if scale_layout not in _LAYOUTS:
        raise refused("scale_layout", repr(scale_layout), f"one of {', '.join(_LAYOUTS)}")
    code_groups = [as_numpy(each) for each in codes]
    scale_groups = [as_numpy(each) for each in scales]
    header = weights_pb2.UploadHeader(name=name, scale_layout=_LAYOUTS[scale_layout], seal=seal)
    if upload_key:
        header.upload_key = check_key("upload_key", upload_key)
    if not code_groups:
        raise refused("codes", "no groups", "at least one", reason="FIELD_MISSING")
    _length("scales", scale_groups, len(code_groups), "a plane of each group")
    dims = []
    for g, (code, scale) in enumerate(zip(code_groups, scale_groups)):
        if code.dtype != np.uint8 or code.ndim != 2 or code.shape[1] == 0 or code.shape[1] % (nvfp4.K_MULTIPLE // 2):
            raise refused(f"codes[{g}]", f"shape {code.shape}, dtype {code.dtype}",
                          f"uint8 [N, K/2] with K a positive multiple of {nvfp4.K_MULTIPLE}", reason="SIZE_MISMATCH")
        n, k = code.shape[0], 2 * code.shape[1]
        wanted = nvfp4.plane_bytes(scale_layout, n, k)
        shaped = scale.shape == (n, k // 16) if scale_layout == nvfp4.LINEAR else scale.size == wanted
        if scale.dtype != np.uint8 or not shaped:
            limit = f"[{n}, {k // 16}]" if scale_layout == nvfp4.LINEAR else f"{wanted} bytes"
            raise refused(f"scales[{g}]", f"shape {scale.shape}, dtype {scale.dtype}", f"uint8 {limit}",
                          reason="SIZE_MISMATCH")
        dims.append((n, k))
    header.groups.extend(weights_pb2.GroupDims(n=n, k=k) for n, k in (dims[:1] if len(set(dims)) == 1 else dims))
    if len(set(dims)) == 1:
        header.group_count = len(dims)
    if alpha is not None:
        factors = as_numpy(alpha).astype(np.float32).reshape(-1)
        _length("alpha", factors, len(dims), "a factor of each group")
        header.alpha.extend(factors.tolist())
    return header, Plane(code_groups), Plane(scale_groups)
