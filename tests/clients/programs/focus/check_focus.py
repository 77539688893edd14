"""
Print the result of the published FOCUS rules for a CSV file: `check_focus.py FILE VERSION CRITERIA`. Runs in
an environment with focus-validator.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import focus_validator
import pyarrow
from pyarrow import csv, parquet

NUMBERS = ("BilledCost", "ContractedCost", "EffectiveCost", "ListCost", "PricingQuantity", "ConsumedQuantity")
TIMES = ("BillingPeriodStart", "BillingPeriodEnd", "ChargePeriodStart", "ChargePeriodEnd")

source, version, criteria = sys.argv[1:]
path = Path(source).resolve()
names = path.read_text().partition("\n")[0].strip().split(",")
types = dict.fromkeys(names, pyarrow.string())
types |= {name: pyarrow.float64() for name in NUMBERS if name in names}
types |= {name: pyarrow.timestamp("us", "UTC") for name in TIMES if name in names}
options = csv.ConvertOptions(column_types=types, strings_can_be_null=True)
# Parquet has types; in a CSV file, the validator would not read a whole number as decimal
typed = Path(tempfile.mkdtemp()) / "rows.parquet"
parquet.write_table(csv.read_csv(path, convert_options=options), typed)
os.chdir(Path(focus_validator.__file__).parents[1])  # the package reads one of its files by a relative path
asked = ["--data-file", typed, "--validate-version", version, "--applicability-criteria", criteria]
program = Path(sys.executable).with_name("focus-validator")
sys.exit(
    subprocess.run([program, *asked, "--block-download", "--focus-dataset", "CostAndUsage"]).returncode and 0
)
