"""The compiled module, if it is installed. `make test-native` installs it if cargo exists."""

from __future__ import annotations

import pytest

from spool.packed.native import MODULE, NativeModule, load_native


@pytest.fixture(scope="session")
def native() -> NativeModule:
    pytest.importorskip(MODULE, reason="the compiled module is not installed: make native")
    return load_native()
