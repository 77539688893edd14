"""Distributions that installed files into the packages of Tollhouse."""

from __future__ import annotations

import re
import sysconfig
from collections.abc import Sequence
from pathlib import Path

_OURS = re.compile(r"^(?:exporters|gateway|spool)/", re.MULTILINE)
_OWN_NAME = re.compile(r"tollhouse-\d")


def foreign_distributions(libraries: Path | None = None) -> Sequence[str]:
    """Return the names of other distributions with files in the packages of Tollhouse, from the records of pip."""
    records = (libraries or Path(sysconfig.get_path("purelib"))).glob("*.dist-info/RECORD")
    others = (record for record in records if not _OWN_NAME.match(record.parent.name))
    return sorted(record.parent.stem for record in others if _OURS.search(record.read_text("utf-8")))
