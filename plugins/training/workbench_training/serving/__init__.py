"""Drawing from the policy under training: in this process, or by a vLLM server."""
