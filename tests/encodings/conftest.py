"""Property tests draw the same examples everywhere and mind no slow machine."""

from hypothesis import settings

from tests.quiet import stretched_tables_are_meant  # noqa: F401

settings.register_profile("steady", derandomize=True, deadline=None)
settings.load_profile("steady")
