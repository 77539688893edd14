"""Fixtures that the tests of deploy/ share with other tests."""

from tests.acceptance.conftest import installations as installations
