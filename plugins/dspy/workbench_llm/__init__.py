"""llm:NAME: any model of the command line tool `llm` and its plugins."""

import workbench


@workbench.hookimpl
def register_lms(register):
    register("llm", "workbench_llm.provider:llm_model")
