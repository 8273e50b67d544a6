"""OpenAI-compatible chat servers (api.openai.com, vLLM, Ollama, llama.cpp and others), and the APIs of Anthropic and
Google."""

import workbench


@workbench.hookimpl
def register_lms(register):
    register("openai", "workbench_openai.client:openai")
    register("hosted_vllm", "workbench_openai.client:hosted_vllm")
    register("ollama", "workbench_openai.client:ollama")
    register("local", "workbench_openai.client:local")
    register("anthropic", "workbench_openai.messages:anthropic")
    register("gemini", "workbench_openai.gemini:gemini")
