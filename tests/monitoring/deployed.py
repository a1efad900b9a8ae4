# SPDX-FileCopyrightText: The Tetrad Authors
# SPDX-License-Identifier: Apache-2.0
"""The rules, dashboards and pages that the tests of this folder read."""
import json
import pathlib
import re
from typing import Any

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
RULES = ROOT / "deploy/prometheus/tetrad.rules.yaml"
DASHBOARDS = ROOT / "deploy/grafana"
METRIC = re.compile(r"\b(?:tetrad|process)_[a-z0-9_]+\b")
METRIC_ROW = re.compile(r"^\| (`[^|]*`) \| (\w+)", re.MULTILINE)
LABELLED = re.compile(r"`([a-z0-9_]+)(?:{([a-z_,]+)})?`")
PROMQL_BLOCK = re.compile(r"```promql\n(.*?)```", re.DOTALL)


def rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def alerts() -> list[dict[str, Any]]:
    return [rule for rule in rules() if "alert" in rule]


def records() -> list[dict[str, Any]]:
    return [rule for rule in rules() if "record" in rule]


def dashboards() -> dict[str, dict[str, Any]]:
    """File name -> document."""
    return {path.name: json.loads(path.read_text()) for path in sorted(DASHBOARDS.glob("*.json"))}


def panels(dashboard: dict[str, Any]) -> list[dict[str, Any]]:
    """Those that show something."""
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def examples(page: pathlib.Path) -> list[str]:
    """The PromQL expressions of a page's code blocks, one a line."""
    return [line for block in PROMQL_BLOCK.findall(page.read_text())
            for line in block.splitlines() if line and not line.startswith("#")]


def documented_metrics() -> dict[str, tuple[str, frozenset[str]]]:
    """Name -> type and labels, as the tables of docs/metrics.md have them."""
    return {name: (kind, frozenset(filter(None, labels.split(","))))
            for names, kind in METRIC_ROW.findall((ROOT / "docs/metrics.md").read_text())
            for name, labels in LABELLED.findall(names)}
