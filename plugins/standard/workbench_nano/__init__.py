"""bundled/nano: the small model that comes with workbench, run in this process."""

import workbench


@workbench.hookimpl
def register_lms(register):
    register("bundled", "workbench_nano.provider:bundled")
