"""Settings of all tests: several share the machine, so no example of hypothesis has a deadline of its own."""

from hypothesis import settings

settings.register_profile("workbench", deadline=None)
settings.load_profile("workbench")
