"""The `code` node: Python source from the workflow file, run in the sandbox. Forged programs are stored as these."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from workbench.errors import Defect, NodeError, SpecError
from workbench.runtime import Context
from workbench.workflow import NodeConfig, SignatureNode, Surroundings, parse_signature
from workbench_kit.acting import find_source_defects


class CodeExample(BaseModel):
    """The function's test: a call and the expected result (`workbench agent functions test`)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    arguments: dict[str, Any] = Field(description="arguments by name")
    result: Any = Field(description="the expected result")


class CodeConfig(NodeConfig):
    """Settings of a `code` node."""

    code: str = Field(description="signature, e.g. `numbers: list[int] -> total: int`")
    source: str = Field(max_length=100_000, description="Python that defines the function; the standard library only")
    function: str = Field("", description="the function to call; default: the last one in the source")
    timeout: float = Field(5.0, gt=0, le=600, description="seconds for one call")
    example: CodeExample | None = Field(None, description="{arguments, result}: the function's test")


class CodeNode(SignatureNode):
    """Calls a function of its source in the sandbox, with the input fields as arguments; the result is journalled.

    With one output the function returns its value; with several, a dict of them.
    """

    Config = CodeConfig
    primary = "code"
    learnable = {"source": "code"}
    config: CodeConfig

    def __init__(self, name: str, config: Any, base: Any):
        super().__init__(name, config, base)
        self.signature = parse_signature(config.code)
        self.function = config.function or _last_function(config.source)

    def defects(self, around: Surroundings) -> Iterable[Defect]:
        schema = {"properties": {name: {} for name in self.inputs}}
        return find_source_defects(self.function, self.config.source, (), schema)

    async def run(self, inputs: Mapping[str, Any], ctx: Context) -> Mapping[str, Any]:
        found = await ctx.sandboxed(self.config.source, self.function, inputs, timeout=self.config.timeout)
        if found["printed"]:
            ctx.note(printed=found["printed"])
        if found["kind"] != "ok":
            where = f"line {found['line']}: " if found["line"] else ""
            raise NodeError(
                "code",
                f"{where}{found['message']}"
                if found["kind"] == "error"
                else f"{found['kind']}: {where}{found['message']}",
            )
        return self._outputs(found["value"])

    def _outputs(self, value: Any) -> Mapping[str, Any]:
        from pydantic import TypeAdapter, ValidationError

        if len(self.outputs) > 1:
            if not isinstance(value, dict) or not set(self.outputs) <= set(value):
                raise NodeError("code", f"{self.function} must return a dict with {', '.join(self.outputs)}")
        else:
            value = {self.signature.outputs[0].name: value}
        checked = {}
        for field in self.signature.outputs:
            found = value[field.name]
            if field.allowed and found not in field.allowed:  # True for 'True', 3 for '3'
                found = next((one for one in field.allowed if str(one) == str(found)), found)
            try:
                checked[field.name] = TypeAdapter(field.type).validate_python(found)
            except ValidationError as error:
                raise NodeError("code", f"{self.function} returned an invalid '{field.name}': {error}") from None
        return checked


def _last_function(source: str) -> str:
    """Return the name of the last function in a source. Raise SpecError with the line of a syntax error."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", None)
        raise SpecError(
            f"source is not valid Python: {error}", hint=f"Correct its line {line}." if line else None, path=("source",)
        ) from None
    names = [n.name for n in tree.body if isinstance(n, ast.FunctionDef)]
    if not names:
        raise SpecError(
            "source defines no function", hint="Write e.g. `def total(numbers): return sum(numbers)`.", path=("source",)
        )
    return names[-1]
