"""
Prints what is wrong with a CSV file of FOCUS rows by the published model of 1.4 and the columns of each version before:
`check_columns.py FILE VERSION`. Runs where focus-data-toolkit is installed.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

from focus_data_toolkit.model.validator import lint_focus_1_4_structure
from focus_data_toolkit.schema.registry import REMOVED_COLUMNS, mandatory_columns, version_columns

DATASET, MODELLED = "Cost and Usage", "1.4"

source, version = sys.argv[1:]
told = min(version, MODELLED)  # what is in work since has no published model
with Path(source).open(encoding="utf-8", newline="") as file:
    rows = list(csv.DictReader(file))
names = set(rows[0])
known = version_columns(DATASET, told)
wrong = [f"no column of {told}: {name}" for name in sorted(names - known) if not name.startswith("x_")]
wrong += [f"not there: {name}" for name in sorted(mandatory_columns(DATASET, told) - names)]
gone = REMOVED_COLUMNS[DATASET]
if told >= "1.3":  # whose values follow the rules of 1.4
    modelled = [{name: value for name, value in row.items() if name not in gone} for row in rows]
    found = lint_focus_1_4_structure(DATASET, modelled).violations
    wrong += [f"{each.column}, row {each.row_index}: {each.rule}: {each.message}" for each in found]
print("\n".join(wrong))
print(f"{len(rows)} rows, {len(wrong)} wrong")
