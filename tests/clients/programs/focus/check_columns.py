"""
Print violations of a CSV file of FOCUS rows against the published 1.4 model and the columns of each earlier
version: `check_columns.py FILE VERSION`. Runs in an environment with focus-data-toolkit.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

from focus_data_toolkit.model.validator import lint_focus_1_4_structure
from focus_data_toolkit.schema.registry import REMOVED_COLUMNS, mandatory_columns, version_columns

DATASET, MODELLED = "Cost and Usage", "1.4"

source, version = sys.argv[1:]
model_version = min(version, MODELLED)  # later draft versions have no published model
with Path(source).open(encoding="utf-8", newline="") as file:
    rows = list(csv.DictReader(file))
names = set(rows[0])
known = version_columns(DATASET, model_version)
wrong = [
    f"no column of {model_version}: {name}" for name in sorted(names - known) if not name.startswith("x_")
]
wrong += [f"not there: {name}" for name in sorted(mandatory_columns(DATASET, model_version) - names)]
gone = REMOVED_COLUMNS[DATASET]
if model_version >= "1.3":  # from version 1.3 on, values follow the rules of version 1.4
    modelled = [{name: value for name, value in row.items() if name not in gone} for row in rows]
    found = lint_focus_1_4_structure(DATASET, modelled).violations
    wrong += [f"{each.column}, row {each.row_index}: {each.rule}: {each.message}" for each in found]
print("\n".join(wrong))
print(f"{len(rows)} rows, {len(wrong)} wrong")
