"""Property tests draw the same examples everywhere and mind no slow machine."""

from hypothesis import settings

settings.register_profile("steady", derandomize=True, deadline=None)
settings.load_profile("steady")
