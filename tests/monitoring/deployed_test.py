# SPDX-FileCopyrightText: The Tetrad Authors
# SPDX-License-Identifier: Apache-2.0
"""Rules, dashboards and pages agree with each other and with docs/metrics.md:
every alert leads to a section of the runbook and is tested both ways, every
metric is documented, every dashboard is in form and what its source writes."""
import itertools
import re
import subprocess
import sys
import unittest
from typing import Any, Iterator

import yaml

import deployed
import promql

PAGES = ("monitoring", "troubleshooting")
PARTS = ("_bucket", "_sum", "_count")
UNITS = {"short", "s", "bytes", "Bps", "reqps", "ops", "percentunit"}
COLUMNS = 24
SEVERITIES = {"critical", "warning"}
LONGEST_SUMMARY = 120


def documented() -> set[str]:
    """The metrics of docs/metrics.md, parts of histograms included."""
    metrics = deployed.documented_metrics()
    return set(metrics) | {name + part for name, (kind, _) in metrics.items() if kind == "histogram" for part in PARTS}


def anchors(page: str) -> set[str]:
    """Of the headings, as the usual viewers of Markdown make them."""
    text = (deployed.ROOT / f"docs/{page}.md").read_text()
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE)}


def minutes(duration: str) -> float:
    return sum(float(number) * {"d": 1440, "h": 60, "m": 1, "s": 1 / 60}[unit]
               for number, unit in re.findall(r"([\d.]+)([dhms])", duration))


def rule_tests() -> Iterator[dict[str, Any]]:
    for path in sorted((deployed.ROOT / "tests/monitoring").glob("*.test.yaml")):
        yield from yaml.safe_load(path.read_text())["tests"]


class RulesTest(unittest.TestCase):
    def test_alerts_say_what_to_do(self) -> None:
        for alert in deployed.alerts():
            with self.subTest(alert["alert"]):
                self.assertEqual(set(alert["labels"]), {"severity"})
                self.assertIn(alert["labels"]["severity"], SEVERITIES)
                notes = alert["annotations"]
                self.assertEqual(set(notes), {"summary", "description", "runbook_url"})
                self.assertLessEqual(len(notes["summary"]), LONGEST_SUMMARY)
                self.assertGreater(len(notes["description"]), len("do something"))
                page, anchor = notes["runbook_url"].split("#")
                self.assertEqual(page, "docs/troubleshooting.md")
                self.assertIn(anchor, anchors("troubleshooting"))

    def test_names_are_unique(self) -> None:
        names = [rule.get("alert") or rule["record"] for rule in deployed.rules()]
        self.assertEqual(len(names), len(set(names)))

    def test_every_alert_is_seen_to_wait_to_fire_and_then_not_to(self) -> None:
        waited, resolved = set(), set()
        for test in rule_tests():
            fired: set[str] = set()
            for case in sorted(test["promql_expr_test"], key=lambda case: minutes(case["eval_time"])):
                named = {name for sample in case["exp_samples"] for name in re.findall(r'alertname="(\w+)"', sample["labels"])}
                if 'ALERTS{alertstate="pending"' in case["expr"]:
                    waited |= named
                elif 'ALERTS{alertstate="firing"}' in case["expr"]:
                    resolved |= fired - named
                    fired |= named
        self.assertEqual({alert["alert"] for alert in deployed.alerts()} - resolved, set())
        self.assertEqual({alert["alert"] for alert in deployed.alerts() if "for" in alert} - waited, set())

    def test_every_recording_is_compared_with_numbers(self) -> None:
        compared = {name for test in rule_tests() for case in test["promql_expr_test"] if case["exp_samples"]
                    for name in promql.metric_names(case["expr"])}
        self.assertEqual({record["record"] for record in deployed.records()} - compared, set())

    def test_operator_has_the_same_rules(self) -> None:
        rules = yaml.safe_load((deployed.RULES.parent / "prometheus-rule.yaml").read_text())
        self.assertEqual(rules["spec"], yaml.safe_load(deployed.RULES.read_text()))


class PagesTest(unittest.TestCase):
    def test_metrics_are_documented(self) -> None:
        known = documented() | {"up", "ALERTS"} | {record["record"] for record in deployed.records()}
        self.assertGreater(len(known), 50)
        expressions = {f"rule {rule.get('alert') or rule['record']}": rule["expr"] for rule in deployed.rules()}
        for name, dashboard in deployed.dashboards().items():
            expressions |= {f"{name} {panel['title']} {target['refId']}": target["expr"]
                            for panel in deployed.panels(dashboard) for target in panel["targets"]}
        for page in ("metrics", *PAGES):
            expressions |= {f"{page}.md {line}": line for line in deployed.examples(deployed.ROOT / f"docs/{page}.md")}
        for where, expression in expressions.items():
            self.assertEqual(promql.metric_names(expression) - known, set(), where)

    def test_metrics_in_text_are_documented(self) -> None:
        known = documented()
        recorded = {part for record in deployed.records() for part in record["record"].split(":")}
        for page in PAGES:
            names = set(deployed.METRIC.findall((deployed.ROOT / f"docs/{page}.md").read_text()))
            self.assertEqual(names - known - recorded, set(), page)

    def test_page_lists_every_alert_with_its_severity_and_section(self) -> None:
        text = (deployed.ROOT / "docs/monitoring.md").read_text()
        listed = {}
        section = ""
        for name, severity, action in re.findall(r"^\| (Tetrad\w+) \| (\w+) \| .* \| (.*) \|$", text, re.MULTILINE):
            link = re.search(r"\(troubleshooting\.md#([\w-]+)\)", action)
            section = link[1] if link else section  # "the same": as the row above
            self.assertTrue(link or action == "the same", action)
            listed[name] = (severity, section)
        self.assertEqual(listed, {alert["alert"]: (alert["labels"]["severity"], alert["annotations"]["runbook_url"].split("#")[1])
                                  for alert in deployed.alerts()})

    def test_runbook_names_its_alerts(self) -> None:
        text = (deployed.ROOT / "docs/troubleshooting.md").read_text()
        for alert in deployed.alerts():
            self.assertTrue(alert["alert"] in text or alert["alert"].startswith("TetradErrorBudgetBurn"), alert["alert"])
        names = {alert["alert"] for alert in deployed.alerts()}
        self.assertEqual({name for name in re.findall(r"\bTetrad[A-Z]\w+", text)} - names, set())

    def test_links_within_the_two_pages_lead_to_headings(self) -> None:
        for page in PAGES:
            text = (deployed.ROOT / f"docs/{page}.md").read_text()
            for target, anchor in re.findall(r"\]\(([\w./-]*)#([\w-]+)\)", text):
                self.assertIn(anchor, anchors(target.removesuffix(".md") or page), page)


class DashboardsTest(unittest.TestCase):
    def setUp(self) -> None:
        self.dashboards = deployed.dashboards()

    def test_there_are_five(self) -> None:
        self.assertEqual(set(self.dashboards), {"overview.json", "latency.json", "gpu.json", "memory.json", "clients.json"})

    def test_are_what_their_sources_write(self) -> None:
        for program in (deployed.DASHBOARDS / "dashboards.py", deployed.RULES.parent / "prometheus_rule.py"):
            checked = subprocess.run([sys.executable, "-B", program, "--check"], capture_output=True, text=True, check=False)
            self.assertEqual(checked.returncode, 0, checked.stderr)

    def test_have_an_identity_and_the_variables(self) -> None:
        uids = set()
        for dashboard in self.dashboards.values():
            self.assertNotIn("id", dashboard)
            uids.add(dashboard["uid"])
            variables = {variable["name"]: variable for variable in dashboard["templating"]["list"]}
            self.assertLessEqual({"datasource", "job", "instance"}, set(variables))
            self.assertEqual((variables["datasource"]["type"], variables["datasource"]["query"]), ("datasource", "prometheus"))
            for name in set(variables) - {"datasource"}:
                self.assertEqual(variables[name]["datasource"]["uid"], "${datasource}")
                self.assertEqual((variables[name]["includeAll"], variables[name]["multi"]), (True, True))
        self.assertEqual(len(uids), len(self.dashboards))

    def test_panels_are_whole(self) -> None:
        for dashboard in self.dashboards.values():
            ids = [panel["id"] for panel in dashboard["panels"]]
            self.assertEqual(len(ids), len(set(ids)))
            titles = [panel["title"] for panel in deployed.panels(dashboard)]
            self.assertEqual(len(titles), len(set(titles)))
            for panel in deployed.panels(dashboard):
                self.assertIn(panel["type"], {"timeseries", "stat", "heatmap"}, panel["title"])
                self.assertEqual(panel["datasource"], {"type": "prometheus", "uid": "${datasource}"}, panel["title"])
                self.assertIn(panel["fieldConfig"]["defaults"]["unit"], UNITS, panel["title"])
                self.assertRegex(panel["description"], r"^[A-Za-z].{15,}\.$", panel["title"])
                references = [target["refId"] for target in panel["targets"]]
                self.assertTrue(references)
                self.assertEqual(len(references), len(set(references)), panel["title"])

    def test_panels_ask_for_what_is_chosen(self) -> None:
        for dashboard in self.dashboards.values():
            for panel in deployed.panels(dashboard):
                for target in panel["targets"]:
                    self.assertEqual(target["datasource"]["uid"], "${datasource}")
                    self.assertNotRegex(target["expr"], r"\[(?!\$__rate_interval\])", panel["title"])
                    for selector in promql.selectors(target["expr"]):
                        chosen = {label: value for label, _, value in selector.matchers}
                        if selector.metric != "ALERTS":  # all that fires, wherever
                            self.assertEqual((chosen.get("job"), chosen.get("instance")), ("$job", "$instance"), panel["title"])

    def test_units_are_those_of_the_metrics(self) -> None:
        """Bytes are shown as bytes, rates of bytes as such, ratios as percent, buckets as a heatmap in seconds."""
        for dashboard in self.dashboards.values():
            for panel in deployed.panels(dashboard):
                unit = panel["fieldConfig"]["defaults"]["unit"]
                for target in panel["targets"]:
                    names = promql.metric_names(target["expr"])
                    if all(name.endswith("_bytes") for name in names):
                        self.assertEqual(unit, "bytes", panel["title"])
                    if all(name.endswith("_bytes_total") for name in names):
                        self.assertEqual(unit, "Bps", panel["title"])
                    if all(name.endswith("_seconds_bucket") for name in names):
                        self.assertEqual(unit, "s", panel["title"])
                    if unit == "percentunit":
                        self.assertIn(" / ", target["expr"], panel["title"])
                    self.assertEqual(target["format"] == "heatmap", panel["type"] == "heatmap", panel["title"])
                    if panel["type"] == "heatmap":
                        self.assertIn("sum by (le)", target["expr"])

    def test_panels_lie_in_the_grid_and_not_on_each_other(self) -> None:
        for dashboard in self.dashboards.values():
            places = [(panel["gridPos"], panel["title"]) for panel in dashboard["panels"]]
            for place, title in places:
                self.assertGreaterEqual(min(place["x"], place["y"]), 0, title)
                self.assertGreater(min(place["w"], place["h"]), 0, title)
                self.assertLessEqual(place["x"] + place["w"], COLUMNS, title)
            for (a, title), (b, other) in itertools.combinations(places, 2):
                apart = (a["x"] + a["w"] <= b["x"] or b["x"] + b["w"] <= a["x"]
                         or a["y"] + a["h"] <= b["y"] or b["y"] + b["h"] <= a["y"])
                self.assertTrue(apart, f"{title} and {other} overlap")


if __name__ == "__main__":
    unittest.main()
