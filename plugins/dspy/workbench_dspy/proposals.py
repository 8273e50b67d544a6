"""The prompt that asks a proposer for a new instruction, and the parser of its answer."""

from __future__ import annotations

from typing import Any

from workbench.errors import NodeError
from workbench_dspy.exported.predictor import PlainAdapter, read_signature
from workbench_kit.prompting import read_prompt


class ProposalAdapter(PlainAdapter):
    """The short prompt of `predict`. If it asks for a single text, the answer is read as an instruction: with or
    without a fence, a label, JSON under a name for it, or a preamble."""

    def read(self, signature: Any, text: str, cut: bool) -> dict[str, Any]:
        texts = [field.name for field in read_signature(signature).outputs if field.type is str]
        if len(texts) != 1 or len(signature.output_fields) != 1:
            return super().read(signature, text, cut)
        found = None if cut else read_prompt(text)
        if found is None:
            raise NodeError("cut" if cut else "unparsed", f"no instruction: {text[:200]!r}")
        return {texts[0]: found}
