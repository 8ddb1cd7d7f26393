"""What the tests of the analysis share."""

from tests.quiet import stretched_tables_are_meant  # noqa: F401
