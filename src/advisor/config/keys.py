"""The keys of the configuration file. This table is their home: parser, JSON Schema, help and documentation follow from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from advisor.gates.amounts import Quantity
from advisor.gates.measures import MEASURES
from advisor.gates.regressions import PARTS
from advisor.rules.rule import FRAMEWORKS

Kind = Literal["names", "text", "choice", "number", "share", "flag", "paths", "path", "pattern", "table"]
LEVELS = ("off", "warn", "error")


@dataclass(frozen=True)
class Key:
    """A key of `[tool.advisor]`. option: the command-line option that overrides it; example: a value as TOML writes it."""

    name: str
    kind: Kind
    meaning: str
    example: str
    option: str | None = None
    default: Any = None
    choices: tuple[str, ...] = ()


KEYS = (
    Key("select", "names", "Only these rules or families", '["host", "pageable-copy"]', "--select"),
    Key("ignore", "names", "Without these rules or families", '["fp8-candidate"]', "--ignore"),
    Key("framework", "choice", "Fixes for this framework first", '"lightning"', "--framework", choices=FRAMEWORKS),
    Key("gpu", "text", "Model of the GPU, where the recording does not tell", '"NVIDIA H100 SXM"', "--gpu"),
    Key("torch-version", "text", "Version of PyTorch, where the recording does not tell", '"2.4"', "--torch-version"),
    Key(
        "step-pattern",
        "pattern",
        "Ranges whose names match this regular expression are the steps",
        '"train_step"',
        "--step-pattern",
    ),
    Key("items-per-step", "number", "Samples or tokens a step, to print the throughput", "4096", "--items-per-step"),
    Key("gpu-hour-cost", "number", "Price of a GPU hour, to print what each finding costs a day", "2.5", "--gpu-hour-cost"),
    Key(
        "rule-dirs",
        "paths",
        "Folders of rules of your own, relative to this file. They hold Python code, so they are used only with "
        "`--trust-rule-dirs`",
        '["tools/advisor-rules"]',
        "--rules",
    ),
    Key(
        "fail-on",
        "names",
        "Conditions that end the command with status 1, as `--fail-on` takes them",
        '["high", "new"]',
        "--fail-on",
    ),
    Key("strict-budgets", "flag", "A condition that cannot be judged counts as failed", "true", "--strict-budgets", False),
    Key("baseline", "path", "File of accepted findings, relative to this file", '"advisor-baseline.json"', "--baseline"),
    Key(
        "baseline-margin",
        "share",
        "Share of the step by which the saving of an accepted finding may grow before it counts again",
        '"5 %"',
        None,
        0.05,
    ),
    Key("rules", "table", "Level and thresholds of a rule, or of all rules of a family", '{ host-sync-in-step = "error" }'),
    Key("budgets", "table", "Limits of figures of the report", '{ step-time = "120 ms" }'),
    Key("regressions", "table", "By how much a figure may get worse in `advisor compare`", '{ step-time = "3 %" }'),
)
BY_NAME = {key.name: key for key in KEYS}


@dataclass(frozen=True)
class Entry:
    """What a table takes under one name: in words, an example as TOML writes it, and the kind of amount."""

    meaning: str
    example: str
    quantity: Quantity


BUDGETS = {
    name: Entry(
        f"{measure.meaning}. {'Minimum' if measure.least else 'Maximum'}",
        measure.example if measure.quantity == "count" else f'"{measure.example}"',
        measure.quantity,
    )
    for name, measure in MEASURES.items()
}
REGRESSIONS = {name: Entry(part.meaning, '"3 %"', "share") for name, part in PARTS.items()}
