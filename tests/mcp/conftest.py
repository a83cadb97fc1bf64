"""Fixtures for the tests of MCP."""

from tests.support.certificates import one_certificate

__all__ = ["one_certificate"]
