#!/usr/bin/env python3
# SPDX-FileCopyrightText: The Tetrad Authors
# SPDX-License-Identifier: Apache-2.0
"""plot.py LINES.jsonl FOLDER

From what tetrad-kernels wrote: FOLDER/ID.svg for each shape, a bar for every time of a
call (ours by activations, then the peers of the FP16 case), its quartiles, and a line
at the floor of the FP16 case. Nothing but Python is needed.
"""
import html
import json
import pathlib
import sys

WIDTH, LABEL, ROW, BAR, TOP = 720, 230, 26, 16, 58
OURS, PEER, FLOOR, INK = "#1f77b4", "#9aa5b1", "#d62728", "#222222"
PEERS = {"cublas_streams": "cuBLAS, streams", "cublas_grouped": "cuBLAS, grouped",
         "torch_grouped_mm": "torch._grouped_mm (BF16)",
         "torch_scaled_grouped_mm_fp8": "torch scaled, FP8 (another function)"}
TYPES = {"fp16": "FP16 x NVFP4", "bf16": "BF16 x NVFP4", "nvfp4": "NVFP4 x NVFP4"}


def rows_of(lines):
    """(label, [median, low, high], colour) of each bar: one shape's lines."""
    timed = {line["activation"]: line for line in lines if "cold_us" in line}
    rows = [(f"Tetrad {TYPES[t]}", timed[t]["cold_us"], OURS) for t in TYPES if t in timed]
    peers = timed.get("fp16", {}).get("peers", {})
    rows += [(PEERS.get(name, name), time, PEER) for name, time in peers.items() if isinstance(time, list)]
    return rows, timed.get("fp16")


def tick_step(most):
    """A round step with at most eight of them."""
    step = 1.0
    while most / step > 8:
        step *= 2.5 if str(step)[0] == "2" else 2
    return step


def svg_of(name, lines):
    rows, fp16 = rows_of(lines)
    most = max(row[1][2] for row in rows) * 1.12
    height = TOP + ROW * len(rows) + 34
    at = lambda us: LABEL + us / most * (WIDTH - LABEL - 20)
    first = lines[0]
    title = (f"{name}: {first['groups']} groups, K {first['k']}, N {first['n']}, "
             f"{sum(first['m'])} rows; {first['device']}, {first['date']}")
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
             f'font-family="sans-serif" font-size="12" fill="{INK}">',
             f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
             f'<text x="10" y="20" font-size="14">{html.escape(title)}</text>',
             '<text x="10" y="38">microseconds a call, cold; less is better</text>']
    step = tick_step(most)
    for i in range(int(most / step) + 1):
        x = at(i * step)
        parts += [f'<line x1="{x:.1f}" y1="{TOP - 6}" x2="{x:.1f}" y2="{height - 28}" stroke="#e5e5e5"/>',
                  f'<text x="{x:.1f}" y="{height - 12}" text-anchor="middle">{i * step:g}</text>']
    for i, (label, (median, low, high), colour) in enumerate(rows):
        y = TOP + ROW * i
        middle = y + BAR / 2
        parts += [f'<text x="{LABEL - 8}" y="{middle + 4:.1f}" text-anchor="end">{html.escape(label)}</text>',
                  f'<rect x="{LABEL}" y="{y}" width="{at(median) - LABEL:.1f}" height="{BAR}" fill="{colour}"/>',
                  f'<line x1="{at(low):.1f}" y1="{middle}" x2="{at(high):.1f}" y2="{middle}" stroke="{INK}"/>',
                  f'<text x="{at(high) + 5:.1f}" y="{middle + 4:.1f}">{median:.1f}</text>']
    if fp16:
        x = at(max(fp16["compute_floor_us"], fp16["memory_floor_us"]))
        parts += [f'<line x1="{x:.1f}" y1="{TOP - 10}" x2="{x:.1f}" y2="{height - 28}" stroke="{FLOOR}" '
                  'stroke-dasharray="4 3"/>',
                  f'<text x="{x + 4:.1f}" y="{TOP - 6}" fill="{FLOOR}">floor, FP16</text>']
    return "\n".join(parts + ["</svg>"]) + "\n"


def main() -> int:
    if len(sys.argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    shapes = {}
    for text in pathlib.Path(sys.argv[1]).read_text().splitlines():
        line = json.loads(text)
        if "cold_us" in line:
            shapes.setdefault(line["id"], []).append(line)
    folder = pathlib.Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    for name, lines in shapes.items():
        (folder / f"{name}.svg").write_text(svg_of(name, lines))
    return 0 if shapes else 1


if __name__ == "__main__":
    sys.exit(main())
