"""What the tests of lakes share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.lake.s3 import s3_server


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server that speaks S3. A start costs a second of the processor: each test has a prefix."""
    with s3_server(tmp_path_factory.mktemp("s3")) as address:
        yield address
