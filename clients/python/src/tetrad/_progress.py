# SPDX-FileCopyrightText: The Tetrad Authors
# SPDX-License-Identifier: Apache-2.0
"""A progress bar of one line, on a terminal and nowhere else."""
from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TextIO, Union

# Called with bytes done, which only grow, and bytes in total. For an upload it runs on a
# thread of the transport; an exception in it ends the upload and is raised from there.
Progress = Callable[[int, int], None]
ProgressLike = Union[Progress, bool, None]

_PAUSE_SECONDS = 0.1
_WIDTH = 30


class Bar:
    """``up [######            ]  34 %  91.2 of 268.4 MB, 812 MB/s``, drawn over itself."""

    def __init__(self, what: str, out: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._what, self._out, self._clock = what, out, clock
        self._began = clock()
        self._drawn = float("-inf")

    def __call__(self, done: int, total: int) -> None:
        now = self._clock()
        ends = done >= total
        if not ends and now - self._drawn < _PAUSE_SECONDS:
            return
        self._drawn = now
        share = done / total if total else 1.0
        rate = done / 1e6 / max(now - self._began, 1e-9)
        self._out.write(f"\r{self._what} [{'#' * int(share * _WIDTH):{_WIDTH}}] {share * 100:3.0f} %  "
                        f"{done / 1e6:.1f} of {total / 1e6:.1f} MB, {rate:.0f} MB/s\x1b[K" + ("\n" if ends else ""))
        self._out.flush()


def reporter(progress: ProgressLike, what: str) -> Progress:
    """What to call: the caller's function, a bar for True if standard error is a terminal, or nothing."""
    if callable(progress):
        return progress
    if progress and sys.stderr.isatty():
        return Bar(what, sys.stderr)
    return lambda done, total: None
