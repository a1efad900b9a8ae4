#!/usr/bin/env python3
# SPDX-FileCopyrightText: The Tetrad Authors
# SPDX-License-Identifier: Apache-2.0
"""torch_peers.py: PyTorch's grouped products of the shapes given on standard input.

In: a JSON list of {"id", "n", "k", "m": [...], "sets", "calls"}. Out: a JSON object,
id -> {peer: [median, first quartile, third quartile]} of microseconds a call, or
{peer: "why not"}. Operands are dequantised FP4 numbers, cold: one CUDA graph goes
round the sets. grouped_mm is BF16; scaled_grouped_mm is FP8 with a scale a row, another
function, for comparison only.
"""
import json
import sys

REPLAYS = 40
CODES = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0]


def spread(times):
    """Median and quartiles by nearest rank."""
    times = sorted(times)
    rank = lambda share: times[max(1, -(-share * len(times) // 100)) - 1]
    return [rank(50), rank(25), rank(75)]


def numbers(torch, rows, k, generator):
    """[rows, k] of BF16: codes times UE4M3 scales in [0.25, 2)."""
    codes = torch.tensor(CODES, device="cuda")[
        torch.randint(0, 16, (rows, k), device="cuda", generator=generator)]
    scales = torch.rand((rows, k // 16), device="cuda", generator=generator) * 1.75 + 0.25
    scales = scales.to(torch.float8_e4m3fn).to(torch.float32).repeat_interleave(16, dim=1)
    return (codes * scales).to(torch.bfloat16)


def timed(torch, call, sets, calls):
    """Microseconds a call of replays of one graph that goes round the sets."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for one in sets:
            call(one)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for i in range(calls):
            call(sets[i % len(sets)])
    times = []
    for replay in range(-3, REPLAYS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        if replay >= 0:
            times.append(begin.elapsed_time(end) * 1e3 / calls)
    return spread(times)


def to_fp8(torch, values):
    """Requantised, a scale for each row of the last dimension."""
    scale = values.float().abs().amax(dim=-1, keepdim=True).clamp(min=1e-6) / 448
    return (values.float() / scale).to(torch.float8_e4m3fn), scale.squeeze(-1)


def measure(torch, case):
    generator = torch.Generator(device="cuda").manual_seed(1)
    groups, n, k = len(case["m"]), case["n"], case["k"]
    a = numbers(torch, sum(case["m"]), k, generator)
    b = torch.stack([numbers(torch, n, k, generator) for _ in range(groups)])
    offsets = torch.tensor(case["m"], device="cuda").cumsum(0).to(torch.int32)
    peers = {}
    try:
        sets = [(a.clone(), b.clone()) for _ in range(case["sets"])]
        peers["torch_grouped_mm"] = timed(
            torch, lambda one: torch._grouped_mm(one[0], one[1].transpose(-2, -1), offs=offsets),
            sets, case["calls"])
        del sets
    except Exception as error:  # of whatever kind: the other peer may still work
        peers["torch_grouped_mm"] = f"{type(error).__name__}: {error}"
    try:
        (a8, sa), (b8, sb) = to_fp8(torch, a), to_fp8(torch, b)
        # A byte a number: twice as many sets for as many bytes.
        sets = [(a8.clone(), b8.clone()) for _ in range(2 * case["sets"])]
        peers["torch_scaled_grouped_mm_fp8"] = timed(
            torch, lambda one: torch._scaled_grouped_mm(
                one[0], one[1].transpose(-2, -1), sa, sb, offs=offsets,
                out_dtype=torch.bfloat16, use_fast_accum=True), sets, 2 * case["calls"])
    except Exception as error:
        peers["torch_scaled_grouped_mm_fp8"] = f"{type(error).__name__}: {error}"
    torch.cuda.empty_cache()
    return peers


def main() -> int:
    cases = json.load(sys.stdin)
    try:
        import torch
    except ImportError as error:
        print(f"torch_peers: {error}", file=sys.stderr)
        return 1
    if not torch.cuda.is_available():
        print("torch_peers: PyTorch sees no GPU", file=sys.stderr)
        return 1
    json.dump({case["id"]: measure(torch, case) for case in cases}, sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
