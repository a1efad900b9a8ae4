# SPDX-FileCopyrightText: The Tetrad Authors
# SPDX-License-Identifier: Apache-2.0
"""Client of Tetrad, a daemon that executes NVFP4 grouped GEMMs for many clients.

    with tetrad.Client.connect("unix:/run/tetrad/tetrad.sock") as client:
        q = tetrad.nvfp4.quantize_weights(w)                         # float32 [G, N, K]
        weights = client.upload("up", q.codes, q.scales, q.alpha)
        result = client.execute(x, weights, m=[3, 0, 9])             # float16 [12, K]
        result.output                                                # float16 [12, N]

:mod:`tetrad.aio` has the same for asyncio, :mod:`tetrad.nvfp4` the number format,
:mod:`tetrad.bf16` BF16 for NumPy, :mod:`tetrad.v1` the messages of the protocol. A
tutorial is in docs/python.md."""
import importlib.metadata as _metadata

from . import bf16, errors, nvfp4
from ._client import Client, Plan
from ._flows import CancelRequest, Ticket
from ._operands import Answer, Counts, Offsets, Request, Result, Timings, Weights
from ._options import CallOptions, ClientOptions, TlsOptions
from .errors import (Aborted, AlreadyExists, Cancelled, Code, DataLoss, DeadlineExceeded, Error, FailedPrecondition,
                     Internal, InvalidArgument, NotFound, PermissionDenied, ResourceExhausted, Unauthenticated,
                     Unavailable, Unimplemented, Violation)
from . import aio  # noqa: I001 - needs the names above

__version__ = _metadata.version("tetrad")

__all__ = [
    "Aborted", "AlreadyExists", "Answer", "CallOptions", "CancelRequest", "Cancelled", "Client", "ClientOptions",
    "Code", "Counts", "DataLoss", "DeadlineExceeded", "Error", "FailedPrecondition", "Internal", "InvalidArgument",
    "NotFound", "Offsets", "PermissionDenied", "Plan", "Request", "ResourceExhausted", "Result", "Ticket", "Timings",
    "TlsOptions", "Unauthenticated", "Unavailable", "Unimplemented", "Violation", "Weights", "aio", "bf16", "errors",
    "nvfp4",
]
