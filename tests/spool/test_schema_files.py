"""
Each schema file belongs to a version of the schema. Statements in a file without a version would never run.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from itertools import chain

import pytest

from spool.postgres.migrations import VERSIONS as OF_POSTGRES
from spool.sqlite.migrations import VERSIONS as OF_SQLITE

LISTED = {
    "spool.postgres": [*chain.from_iterable(version.files for version in OF_POSTGRES)],
    "spool.sqlite": [name for versions in OF_SQLITE.values() for name in chain.from_iterable(versions)],
}


@pytest.mark.parametrize(("package", "listed"), LISTED.items())
def test_every_file_belongs_to_a_version(package: str, listed: Sequence[str]) -> None:
    assert sorted(file.name for file in files(package).joinpath("schema").iterdir()) == sorted(listed)
