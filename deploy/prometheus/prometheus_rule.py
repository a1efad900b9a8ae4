#!/usr/bin/env python3
# SPDX-FileCopyrightText: The Tetrad Authors
# SPDX-License-Identifier: Apache-2.0
"""deploy/prometheus/prometheus_rule.py [--check] [--pages URL]

Writes tetrad.rules.yaml as a PrometheusRule of the Prometheus operator beside
this file (prometheus-rule.yaml). --check writes nothing and fails if that file
is not what this would write. --pages prints it with links to the runbooks below
that address, for example of your copy of the repository, instead of paths.
"""
import argparse
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
TARGET = HERE / "prometheus-rule.yaml"
HEAD = """\
# SPDX-FileCopyrightText: The Tetrad Authors
# SPDX-License-Identifier: Apache-2.0
# Written by deploy/prometheus/prometheus_rule.py from tetrad.rules.yaml.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: tetrad
  labels:
    app.kubernetes.io/name: tetrad
spec:
"""


def prometheus_rule() -> str:
    rules = (HERE / "tetrad.rules.yaml").read_text()
    body = rules[rules.index("groups:\n"):]
    return HEAD + "".join(f"  {line}" if line.strip() else line for line in body.splitlines(keepends=True))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--pages", metavar="URL")
    options = parser.parse_args()
    text = prometheus_rule()
    if options.pages:
        print(text.replace("runbook_url: docs/", f"runbook_url: {options.pages.rstrip('/')}/docs/"), end="")
    elif not options.check:
        TARGET.write_text(text)
    elif not TARGET.is_file() or TARGET.read_text() != text:
        print(f"prometheus_rule: {TARGET.name} is not what this would write; run it", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
