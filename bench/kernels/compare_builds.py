#!/usr/bin/env python3
# SPDX-FileCopyrightText: The Tetrad Authors
# SPDX-License-Identifier: Apache-2.0
"""compare_builds.py [--rounds N] [--slower SHARE] [--cases FILE] [--only ID] BEFORE AFTER

A gate: runs bin/tetrad-kernels of two bundles in turn on this machine's GPU and compares
the cold times of every case. Prints a line for each: both medians over the rounds, their
ratio, and the quartiles of the ratios of the single rounds. A case is slower if the
ratio is above 1 + SHARE (0.03) and three quarters of the rounds say so too (their lower
quartile is above 1), since clocks and machines are not the same from run to run. Exit
status 0: none is slower; 1: one is, or only BEFORE could time it; 2: nothing to compare.
"""
import argparse
import json
import pathlib
import subprocess
import sys


def rank(values, percent):
    """Nearest rank: a value that was measured."""
    values = sorted(values)
    return values[max(1, -(-percent * len(values) // 100)) - 1]


def verdicts(before, after, slower):
    """(case, line to print, whether it is slower) from case -> time of each round."""
    for case, old in sorted(before.items()):
        new = after.get(case, [])
        if len(new) != len(old):
            yield case, f"{case}: timed {len(old)} times before, {len(new)} times after", True
            continue
        ratio = rank(new, 50) / rank(old, 50)
        ratios = [n / o for n, o in zip(new, old)]
        low, high = rank(ratios, 25), rank(ratios, 75)
        worse = ratio > 1 + slower and low > 1
        yield case, (f"{case}: {rank(old, 50):.2f} us before, {rank(new, 50):.2f} us after, ratio {ratio:.3f} "
                     f"({low:.3f} to {high:.3f}){' SLOWER' if worse else ''}"), worse


def times_of(text):
    """case -> its cold time, of lines of tetrad-kernels."""
    lines = [json.loads(line) for line in text.splitlines()]
    return {f"{line['id']} {line['activation']}": line["cold_us"][0] for line in lines if "cold_us" in line}


def main() -> int:
    parser = argparse.ArgumentParser(usage=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--slower", type=float, default=0.03)
    parser.add_argument("--cases")
    parser.add_argument("--only")
    parser.add_argument("before", type=pathlib.Path)
    parser.add_argument("after", type=pathlib.Path)
    options = parser.parse_args()
    chosen = [word for name in ("cases", "only") if getattr(options, name)
              for word in (f"--{name}", getattr(options, name))]
    collected = ({}, {})
    for round_number in range(options.rounds):
        builds = [(options.before, collected[0]), (options.after, collected[1])]
        # Who comes second finds a warmer machine: not always the same one.
        for folder, into in builds if round_number % 2 == 0 else reversed(builds):
            done = subprocess.run([folder / "bin/tetrad-kernels", "--no-peers", *chosen], check=False, text=True,
                                  stdout=subprocess.PIPE)
            for case, time in times_of(done.stdout).items():
                into.setdefault(case, []).append(time)
    judged = list(verdicts(*collected, options.slower))
    for _, text, _ in judged:
        print(text)
    if not judged:
        print("compare_builds: nothing was timed", file=sys.stderr)
        return 2
    return 1 if any(worse for _, _, worse in judged) else 0


if __name__ == "__main__":
    sys.exit(main())
