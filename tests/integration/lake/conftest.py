"""Fixtures that the tests of data lakes share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.lake.s3 import s3_server


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """
    Return the address of an S3 server. A start costs a second of processor time, so tests share it
    with separate prefixes.
    """
    with s3_server(tmp_path_factory.mktemp("s3")) as address:
        yield address
