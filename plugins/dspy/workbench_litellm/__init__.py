"""Models that LiteLLM or DSPy serve and no other provider does: anthropic/..., gemini/..., bedrock/..."""

import workbench


@workbench.hookimpl
def register_lms(register):
    register("*", "workbench_litellm.provider:anything")
    register("litellm", "workbench_litellm.provider:anything")
