"""What the tests of deploy/ share with the others."""

from tests.acceptance.conftest import installations as installations
