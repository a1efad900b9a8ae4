#!/usr/bin/env python3
# SPDX-FileCopyrightText: The Tetrad Authors
# SPDX-License-Identifier: Apache-2.0
"""deploy/grafana/dashboards.py [--check]

Writes the dashboards beside this file, one JSON document each, as Grafana
imports or provisions them (9.5 or newer). --check writes nothing and fails if a
file is not what this would write.

In expressions `@` stands for the matchers of the chosen jobs and instances and
`%` for the range Grafana finds for rates. Expressions use what the daemon
exports, not recorded series, so that dashboards work without the rules; only
the number of firing alerts needs them.
"""
import json
import pathlib
import sys
from typing import Any, NamedTuple

HERE = pathlib.Path(__file__).resolve().parent
CHOSEN = 'job=~"$job", instance=~"$instance"'
EXECUTE = 'method="tetrad.v1.Gemm/Execute"'
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
COLUMNS = 24


class Query(NamedTuple):
    expression: str
    legend: str = "{{instance}}"


class Panel(NamedTuple):
    kind: str  # Grafana's name of the panel type
    title: str
    description: str
    unit: str  # Grafana's name of the unit
    queries: tuple[Query, ...]
    width: int
    height: int
    stacked: bool = False


class Row(NamedTuple):
    title: str
    panels: tuple[Panel, ...]


def series(title: str, description: str, unit: str, *queries: Query, width: int = 8, stacked: bool = False) -> Panel:
    return Panel("timeseries", title, description, unit, queries, width, 8, stacked)


def number(title: str, description: str, unit: str, expression: str, legend: str = "", width: int = 4) -> Panel:
    return Panel("stat", title, description, unit, (Query(expression, legend),), width, 4)


def heatmap(title: str, description: str, metric: str, labels: str = "") -> Panel:
    buckets = f"sum by (le) (increase({metric}_bucket{{{labels}@}}[%]))"
    return Panel("heatmap", title, description, "s", (Query(buckets, "{{le}}"),), 12, 10)


def quantile(share: float, metric: str, by: str = "instance", labels: str = "") -> Query:
    return Query(f"histogram_quantile({share}, sum by ({by}, le) (rate({metric}_bucket{{{labels}@}}[%])))",
                 f"p{100 * share:g} {{{{{by}}}}}")


def rate_by(label: str, counter: str) -> Query:
    return Query(f"sum by ({label}) (rate({counter}{{@}}[%]))", f"{{{{{label}}}}}")


def level(gauge: str, legend: str = "{{instance}}") -> Query:
    return Query(f"{gauge}{{@}}", legend)


def level_and_limit(gauge: str, limit: str) -> tuple[Query, Query]:
    return level(gauge), level(limit, "{{instance}} limit")


ANSWERS = ('sum by (code) (rate(tetrad_requests_total{@}[%])'
           ' or label_replace(rate(tetrad_stream_requests_total{@}[%]), "method", "stream", "", "")'
           ' or label_replace(rate(tetrad_ticket_outcomes_total{@}[%]), "method", "ticket", "", ""))')
FLOOR_SHARE = Query("rate(tetrad_floor_seconds_total{@}[%]) / rate(tetrad_device_seconds_sum{@}[%])")
OVERLOAD = Query('(sum by (instance) (rate(tetrad_requests_total{code="RESOURCE_EXHAUSTED", @}[%]))'
                 ' or 0 * sum by (instance) (rate(tetrad_requests_total{@}[%])))'
                 ' / sum by (instance) (rate(tetrad_requests_total{@}[%]))')

OVERVIEW = (
    Row("State", (
        number("Daemons scraped", "Targets that answer. Fewer than there should be: the alert TetradDown says which.",
               "short", "sum(up{@})"),
        number("Serving", "Daemons that want new requests; the others drain.", "short", "sum(tetrad_serving{@})"),
        number("Alerts firing", "Alerts of deploy/prometheus/tetrad.rules.yaml that fire now, on all instances.", "short",
               'count(ALERTS{alertname=~"Tetrad.+", alertstate="firing"}) or vector(0)'),
        number("Youngest process", "Time since the last start of any daemon. Short without a roll-out: it crashed or lost its device.",
               "s", "min(time() - process_start_time_seconds{@})"),
        number("Version", "Versions and commits that run.", "short", "count by (version, commit) (tetrad_build_info{@})",
               "{{version}} {{commit}}"),
        number("Devices", "What computes, by compute capability.", "short", "count by (capability) (tetrad_device_info{@})",
               "{{capability}}"))),
    Row("Requests", (
        series("Answers by code", "Replies of RPCs, answers in ExecuteStreams and outcomes of tickets, by gRPC status code.",
               "reqps", Query(ANSWERS, "{{code}}"), stacked=True),
        series("Execute, time in the daemon", "From the arrival of an Execute until its reply was handed to the network.", "s",
               Query(f"histogram_quantile(0.5, sum by (le) (rate(tetrad_request_seconds_bucket{{{EXECUTE}, @}}[%])))", "p50"),
               Query(f"histogram_quantile(0.99, sum by (le) (rate(tetrad_request_seconds_bucket{{{EXECUTE}, @}}[%])))", "p99")),
        series("Refused as overload", "Share of RPCs that ended with RESOURCE_EXHAUSTED: a queue, a budget or a quota was full.",
               "percentunit", OVERLOAD))),
    Row("Work", (
        series("Launches on the device", "Mean number of launches on the device: device time over time. Near the lanes it has: busy.",
               "short", Query("rate(tetrad_device_seconds_sum{@}[%])")),
        series("Share of the floor", "Time that executions could not have beaten over the time they took on the device. 1 is the limit of the device.",
               "percentunit", FLOOR_SHARE),
        series("Queued", "Launches admitted and not yet on the device. At queue_depth further ones are refused.",
               "short", level("tetrad_launches_queued")))),
    Row("Processes", (
        series("Processors", "Processors that the daemon keeps busy.", "short", Query("rate(process_cpu_seconds_total{@}[%])")),
        series("Resident memory", "Host memory of the process. It has no limit of its own: budgets bound what clients can take.",
               "bytes", level("process_resident_memory_bytes")),
        series("Open files", "File descriptors. At the limit of the process no further connection is taken.", "short",
               level("process_open_fds")))),
)

LATENCY = (
    Row("Calls", (
        heatmap("Time of calls", "From arrival until the reply was handed to the network, of the chosen methods. Streams count as long as they are open.",
                "tetrad_request_seconds", 'method=~"$method", '),
        series("Quantiles by method", "The same as quantiles over all chosen instances.", "s",
               *(quantile(share, "tetrad_request_seconds", "method", 'method=~"$method", ') for share in (0.5, 0.9, 0.99)), width=12),
        series("p99 by instance", "One instance above the others: look at its device and its clients.", "s",
               quantile(0.99, "tetrad_request_seconds", "instance", 'method=~"$method", '), width=12),
        series("Calls by method", "RPCs that ended, streams included.", "reqps",
               Query('sum by (method) (rate(tetrad_requests_total{method=~"$method", @}[%]))', "{{method}}"), width=12))),
    Row("Launches", (
        heatmap("Time in the queue", "From admission until the device got the launch.", "tetrad_queue_seconds"),
        heatmap("Time on the device", "Of a launch. Bands are the shapes that clients use.", "tetrad_device_seconds"),
        series("Queue", "Wait for the device. Grows when more comes than the device does.", "s",
               *(quantile(share, "tetrad_queue_seconds") for share in (0.5, 0.99))),
        series("Handing over", "Time to hand a launch to the device; tens of microseconds with a graph.", "s",
               *(quantile(share, "tetrad_launch_seconds") for share in (0.5, 0.99))),
        series("Device", "Time on the device.", "s", *(quantile(share, "tetrad_device_seconds") for share in (0.5, 0.99))),
        series("Where the time goes", "Mean time of a launch in each part, over all chosen instances.", "s",
               *(Query(f"sum(rate(tetrad_{part}_seconds_sum{{@}}[%])) / sum(rate(tetrad_{part}_seconds_count{{@}}[%]))", part)
                 for part in ("queue", "launch", "device")), width=24, stacked=True))),
)

GPU = (
    Row("Launches", (
        series("Launches by outcome", "failed, refused and device_lost are faults of the device; the rest but done ends by clients or at a drain.",
               "ops", rate_by("outcome", "tetrad_launches_total"), stacked=True),
        series("In flight", "Launches admitted and not completed, queued ones included.", "short", level("tetrad_launches_in_flight")),
        series("Queued", "Launches admitted and not yet on the device.", "short", level("tetrad_launches_queued")),
        series("Executions by weights", "Launches completed and answered, by weights name; names beyond 64 are other.", "ops",
               rate_by("weights", "tetrad_executions_total"), stacked=True),
        series("Share of the floor", "Time that executions could not have beaten over their time on the device.", "percentunit", FLOOR_SHARE),
        series("Floor and device time", "Device seconds a second: what the work took, and what it could not have beaten.", "short",
               Query("rate(tetrad_device_seconds_sum{@}[%])", "{{instance}} taken"),
               Query("rate(tetrad_floor_seconds_total{@}[%])", "{{instance}} floor")))),
    Row("Plans", (
        series("Plans found, built, dropped", "In steady state plans are found; building takes time, dropping makes for building again.", "ops",
               *(Query(f"sum(rate(tetrad_plan_cache_{what}_total{{@}}[%]))", what) for what in ("hits", "misses", "evictions"))),
        series("Plans cached", "Plans held, and how many may be. A full cache is in order as long as little is dropped.", "short",
               *level_and_limit("tetrad_plans_cached", "tetrad_plan_capacity")),
        series("Plans on the device", "Plans with tables in device memory; 0 on the CPU.", "short", level("tetrad_device_plans")),
        series("Tables", "Device memory of tables, scratch of bindings and proofs, states of launches; bounded by plan_device_bytes.",
               "bytes", level("tetrad_device_table_bytes")),
        series("Tensor maps", "Tensor maps encoded for live bindings.", "short", level("tetrad_device_tensor_maps")),
        series("Plan handles", "Handles given out and not released.", "short", level("tetrad_plan_handles")))),
    Row("Graphs", (
        series("Captures and proofs", "Launches captured and instantiated, and proofs of replays. In steady state both are 0.", "ops",
               Query("rate(tetrad_device_captures_total{@}[%])", "{{instance}} captures"),
               Query("rate(tetrad_device_replay_proofs_total{@}[%])", "{{instance}} proofs")),
        series("Graphs", "Instantiated graphs, idle ones included.", "short", level("tetrad_device_graphs")),
        series("Memory of graphs", "As the driver's free memory fell. At the limit the graph unused for longest goes; both are 0 on the CPU.",
               "bytes", *level_and_limit("tetrad_device_graph_bytes", "tetrad_device_graph_limit_bytes")))),
)

MEMORY = (
    Row("Device", (
        series("Device memory", "All of it, and what may be allocated.", "bytes",
               *level_and_limit("tetrad_device_allocated_bytes", "tetrad_device_limit_bytes")),
        series("Pool by use", "Memory taken for what is never exported: in chunks, as allocations of their own, free, and what the device refused to take back.",
               "bytes", Query("sum by (state) (tetrad_pool_bytes{@})", "{{state}}"), stacked=True),
        series("Free, and the largest free range", "The second far below the first: the pool is fragmented.", "bytes",
               Query('tetrad_pool_bytes{state="free", @}', "{{instance}} free"),
               level("tetrad_pool_largest_free_bytes", "{{instance}} largest")),
        series("Taken by the pool", "Device memory that the pool holds.", "bytes", level("tetrad_pool_reserved_bytes")),
        series("Allocations and chunks", "Allocations of device memory, and chunks of the pool.", "short",
               level("tetrad_device_allocations", "{{instance}} allocations"), level("tetrad_pool_chunks", "{{instance}} chunks")),
        series("Let go and not back", "Plans, weights and blocks that were let go of and whose memory is still in use. It should come down to 0 by itself.",
               "short", level("tetrad_reclaimable")))),
    Row("Budgets", (
        series("Staging", "Device memory for inline operands. Idle sets give way, so full is in order as long as nothing is refused.", "bytes",
               *level_and_limit("tetrad_staging_bytes", "tetrad_staging_limit_bytes")),
        series("Requests and replies", "Host memory of Execute calls under way. At the limit calls are refused.", "bytes",
               *level_and_limit("tetrad_call_bytes", "tetrad_call_limit_bytes")),
        series("Tickets", "Host memory of requests and outcomes of tickets. At the limit Submit is refused.", "bytes",
               *level_and_limit("tetrad_ticket_bytes", "tetrad_ticket_limit_bytes")))),
    Row("Weights, blocks, leases", (
        series("Weights", "Device memory of all versions.", "bytes", level("tetrad_weights_bytes")),
        series("Versions of weights", "Sealed or not. Grows without end: somebody uploads and drops nothing.", "short",
               level("tetrad_weights_versions")),
        series("Memory of blocks", "Blocks of clients, freed ones still in use included.", "bytes", level("tetrad_block_bytes")),
        series("Blocks", "Blocks of clients.", "short", level("tetrad_blocks")),
        series("Leases", "Attached, and detached in their grace time.", "short",
               Query("sum by (state) (tetrad_leases{@})", "{{state}}"), stacked=True),
        series("Leases expired", "Leases whose clients did not come back within lease_grace_seconds.", "ops",
               Query("rate(tetrad_leases_expired_total{@}[%])")))),
)

CLIENTS = (
    Row("Who is there", (
        series("Clients", "Identities that have calls under way.", "short", level("tetrad_clients")),
        series("Calls under way", "RPCs begun and not ended, the eight methods with most of them.", "short",
               Query("topk(8, sum by (method) (tetrad_requests_in_flight{@}))", "{{method}}")),
        series("Open streams", "Streams that clients hold open, by kind.", "short",
               Query("sum by (kind) (tetrad_open_streams{@})", "{{kind}}")),
        series("Received", "Message bytes of RPCs that ended, by method.", "Bps", rate_by("method", "tetrad_received_bytes_total")),
        series("Sent", "Message bytes of RPCs that ended, by method.", "Bps", rate_by("method", "tetrad_sent_bytes_total")),
        series("Requests in streams", "Requests of ExecuteStreams answered, by code.", "reqps",
               rate_by("code", "tetrad_stream_requests_total")))),
    Row("What is refused", (
        series("Codes other than OK", "RPCs that failed, by code. docs/errors.md says what a client does about each.", "reqps",
               Query('sum by (code) (rate(tetrad_requests_total{code!="OK", @}[%]))', "{{code}}")),
        series("Refused as overload", "Share of RPCs that ended with RESOURCE_EXHAUSTED.", "percentunit", OVERLOAD),
        series("Refused for credentials", "Calls and answers in streams: none shown, bad, group missing, another client's.", "reqps",
               rate_by("reason", "tetrad_refused_calls_total")),
        series("Refused at client_calls", "Calls of a client that has as many under way as it may.", "reqps",
               Query("rate(tetrad_client_calls_refused_total{@}[%])")),
        series("Streams that stood still", "Calls ended because their client neither read nor wrote for progress_seconds.", "ops",
               rate_by("method", "tetrad_stalled_streams_total"), width=16))),
    Row("Tickets", (
        series("Tickets", "By what they wait for.", "short", Query("sum by (state) (tetrad_tickets{@})", "{{state}}"), stacked=True),
        series("Outcomes", "Tickets that got their outcome, by code.", "ops", rate_by("code", "tetrad_ticket_outcomes_total")),
        series("Repeats", "Submits that found a ticket under their idempotency key: clients that sent again.", "ops",
               Query("rate(tetrad_ticket_repeats_total{@}[%])")))),
)

METHOD = ("method", 'label_values(tetrad_requests_total{job=~"$job"}, method)')
# File name -> title, further variables, rows.
DASHBOARDS = {
    "overview": ("Tetrad: overview", (), OVERVIEW),
    "latency": ("Tetrad: latency", (METHOD,), LATENCY),
    "gpu": ("Tetrad: GPU and graphs", (), GPU),
    "memory": ("Tetrad: memory and leases", (), MEMORY),
    "clients": ("Tetrad: clients", (), CLIENTS),
}


def expanded(expression: str) -> str:
    return expression.replace("@", CHOSEN).replace("%", "$__rate_interval")


def drawn(panel: Panel) -> dict[str, Any]:
    """What of a panel depends on its type."""
    if panel.kind == "timeseries":
        return {"options": {"legend": {"displayMode": "table", "placement": "bottom", "calcs": ["lastNotNull", "max"]},
                            "tooltip": {"mode": "multi", "sort": "desc"}},
                "custom": {"fillOpacity": 10 if not panel.stacked else 40, "showPoints": "never",
                           "stacking": {"mode": "normal" if panel.stacked else "none"}}}
    if panel.kind == "stat":
        return {"options": {"reduceOptions": {"calcs": ["lastNotNull"]}, "textMode": "auto", "colorMode": "none"}, "custom": {}}
    return {"options": {"calculate": False, "yAxis": {"unit": panel.unit}, "color": {"mode": "scheme", "scheme": "Spectral"},
                        "cellGap": 0, "filterValues": {"le": 1e-9}}, "custom": {}}


def panel_json(panel: Panel, number_: int, x: int, y: int) -> dict[str, Any]:
    shape = drawn(panel)
    targets = [{"refId": chr(ord("A") + i), "datasource": SOURCE, "expr": expanded(query.expression),
                "legendFormat": query.legend, "range": panel.kind != "stat", "instant": panel.kind == "stat",
                "format": "heatmap" if panel.kind == "heatmap" else "time_series"}
               for i, query in enumerate(panel.queries)]
    return {"id": number_, "type": panel.kind, "title": panel.title, "description": panel.description, "datasource": SOURCE,
            "gridPos": {"x": x, "y": y, "w": panel.width, "h": panel.height}, "targets": targets, "options": shape["options"],
            "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0, "custom": shape["custom"]}, "overrides": []}}


def laid_out(rows: tuple[Row, ...]) -> list[dict[str, Any]]:
    """Panels from left to right; a new line where one does not fit."""
    panels: list[dict[str, Any]] = []
    y = 0
    for row in rows:
        panels.append({"id": len(panels) + 1, "type": "row", "title": row.title, "collapsed": False, "panels": [],
                       "gridPos": {"x": 0, "y": y, "w": COLUMNS, "h": 1}})
        y += 1
        x = height = 0
        for panel in row.panels:
            if x + panel.width > COLUMNS:
                x, y, height = 0, y + height, 0
            panels.append(panel_json(panel, len(panels) + 1, x, y))
            x, height = x + panel.width, max(height, panel.height)
        y += height
    return panels


def variable(name: str, query: str) -> dict[str, Any]:
    return {"name": name, "label": name, "type": "query", "datasource": SOURCE, "refresh": 2, "sort": 1,
            "query": {"query": query, "refId": name}, "definition": query,
            "multi": True, "includeAll": True, "allValue": ".+", "current": {"selected": True, "text": ["All"], "value": ["$__all"]}}


def dashboard(name: str) -> dict[str, Any]:
    title, further, rows = DASHBOARDS[name]
    variables = [{"name": "datasource", "label": "data source", "type": "datasource", "query": "prometheus"},
                 variable("job", "label_values(tetrad_build_info, job)"),
                 variable("instance", 'label_values(tetrad_build_info{job=~"$job"}, instance)'),
                 *(variable(*each) for each in further)]
    return {"uid": f"tetrad-{name}", "title": title, "tags": ["tetrad"], "schemaVersion": 38, "editable": True,
            "refresh": "30s", "time": {"from": "now-1h", "to": "now"}, "timezone": "browser", "graphTooltip": 1,
            "links": [{"type": "dashboards", "title": "Tetrad", "tags": ["tetrad"], "asDropdown": True,
                       "includeVars": True, "keepTime": True}],
            "templating": {"list": variables}, "panels": laid_out(rows)}


def main() -> int:
    stale = []
    for name in DASHBOARDS:
        path = HERE / f"{name}.json"
        text = json.dumps(dashboard(name), indent=1) + "\n"
        if "--check" not in sys.argv[1:]:
            path.write_text(text)
        elif not path.is_file() or path.read_text() != text:
            stale.append(path.name)
    for name in stale:
        print(f"dashboards: {name} is not what deploy/grafana/dashboards.py writes; run it", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
