# SPDX-FileCopyrightText: The Tetrad Authors
# SPDX-License-Identifier: Apache-2.0
"""What the tests need to know of a PromQL expression, of the plain form that our
rules and dashboards have: its selectors, the labels it groups or joins by, and
what it compares when its thresholds are taken away."""
import itertools
import re
from typing import NamedTuple

WORDS = {"and", "or", "unless", "offset", "bool", "by", "on", "ignoring", "without", "group_left", "group_right"}
GROUPING = re.compile(r"\b(?:by|on|ignoring|without|group_left|group_right)\s*\(([^)]*)\)")
RANGE = re.compile(r"\[[^\]]*\]")
# A text, or a name with its matchers; "(" after it makes it a function.
TOKEN = re.compile(r'"[^"]*"|(?<![\w:.])([A-Za-z_:][\w:]*)\s*(\{[^}]*\})?\s*(\()?')
MATCHER = re.compile(r'(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"')
THRESHOLD = re.compile(r"\s(?:==|!=|<=|>=|<|>)\s*[\d.]+(?:\s*\*\s*[\d.]+)?")
# A selector that is to have a value for each of several alternatives.
ALTERNATIVES = re.compile(r"[\w/.]+(\|[\w/.]+)+")


class Selector(NamedTuple):
    metric: str
    matchers: tuple[tuple[str, str, str], ...]  # label, operator, value

    def text(self) -> str:
        return self.metric + "{" + ", ".join(f'{label}{operator}"{value}"' for label, operator, value in self.matchers) + "}"

    def without(self, label: str) -> "Selector":
        return Selector(self.metric, tuple(each for each in self.matchers if each[0] != label))

    def alternatives(self) -> list["Selector"]:
        """One selector for each combination of what `label=~"a|b"` lists."""
        choices = [[(label, "=", one) for one in value.split("|")]
                   if operator == "=~" and ALTERNATIVES.fullmatch(value) else [(label, operator, value)]
                   for label, operator, value in self.matchers]
        return [Selector(self.metric, each) for each in itertools.product(*choices)]


def selectors(expression: str) -> list[Selector]:
    found = []
    for match in TOKEN.finditer(GROUPING.sub(" ", RANGE.sub(" ", expression))):
        name, matchers, call = match.groups()
        if name is not None and call is None and name not in WORDS:
            found.append(Selector(name, tuple(MATCHER.findall(matchers or ""))))
    return found


def metric_names(expression: str) -> set[str]:
    return {selector.metric for selector in selectors(expression)}


def grouping_labels(expression: str) -> set[str]:
    return {label.strip() for group in GROUPING.findall(expression) for label in group.split(",") if label.strip()}


def without_thresholds(expression: str) -> str:
    """The values that an alert compares: they are there whether it fires or not."""
    return THRESHOLD.sub("", re.sub(r"\babsent\(([^()]*)\)", r"\1", expression))


def substituted(expression: str, **variables: str) -> str:
    """An expression of a dashboard with its variables filled in; refuses those that are left."""
    for name, value in variables.items():
        expression = re.sub(rf"\$({name}\b|\{{{name}\}})", lambda _, value=value: value, expression)
    if "$" in expression:
        raise ValueError(f"a variable is not known: {expression}")
    return expression
