"""The node kind `dspy`: a DSPy module of the user's. Its predictors' instructions and demos can be optimized."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, Literal

from pydantic import Field

from workbench.errors import SpecError, suggest
from workbench.runtime import Context
from workbench.spec import PREFIX, load_user_code, parse_address, read_user_code
from workbench.workflow import NodeConfig, NodeKind, Signature, SignatureNode, parse_signature
from workbench_dspy.class_outline import declared_predictors, declared_signature, find_class
from workbench_dspy.predictors import plain, predictors_of

_EMPTY = Signature((), ())


class PredictorConfig(NodeConfig):
    """Settings of one predictor of a module. The module's own values are the defaults."""

    instructions: str | None = Field(None, description="what to do, in words")
    demos: list[dict[str, Any]] | None = Field(None, description="worked examples: inputs and outputs")


class DSPyConfig(NodeConfig):
    """Settings of a `dspy` node."""

    module: str = Field(description="the class: python:file.py:Class or python:module:Class, a subclass of dspy.Module")
    signature: str | None = Field(
        None, description='what it reads and gives, e.g. "question -> answer"; else its class attribute `signature`'
    )
    arguments: dict[str, Any] = Field(default_factory=dict, description="keyword arguments of the class")
    predictors: dict[str, PredictorConfig] = Field(
        default_factory=dict, description="instructions and demos, by predictor"
    )
    adapter: Literal["chat", "json", "xml", "plain"] = Field(
        "chat", description="one of DSPy's adapters, or the short prompt of `predict`"
    )
    calls: int = Field(8, ge=1, le=1000, description="maximum number of model calls per example")
    lm: str | dict[str, Any] | None = Field(None, description="another language model for this node")


class DSPyPredictor(SignatureNode):
    """A predictor of a module. It runs as a part of the module."""

    Config = PredictorConfig
    learnable = {"instructions": "text", "demos": "demos"}
    config: PredictorConfig

    def __init__(self, name: str, config: PredictorConfig, base: Any, signature: Signature):
        super().__init__(name, config, base)
        self.signature = signature


class DSPyModule(SignatureNode):
    """A DSPy module. Its calls are paid and journaled like those of any node; its other effects are not."""

    Config = DSPyConfig
    primary = "module"
    foreign = True
    groups = ("predictors",)
    config: DSPyConfig

    def __init__(self, name: str, config: Any, base: Any):
        super().__init__(name, config, base)
        if not config.module.startswith(PREFIX):
            raise SpecError(
                f"'{config.module}' names Python without saying so",
                hint=f"Write dspy: {PREFIX}{config.module}.",
                path=("dspy",),
            )
        self.address = parse_address(config.module)
        made = read_user_code(config.module, base, self.code, "module")
        self.signature = self._read_signature()
        if self.code == "loaded":
            self._check_class(made)
            self._check_predictors(list(self.predictors))

    def _read_signature(self) -> Signature:
        text = self.config.signature or declared_signature(self.source, self.config.arguments)
        if text is None:
            if self.code == "unread":  # a stored run, whose code may be lost
                return _EMPTY
            raise SpecError(
                f"what {self.address.name} reads and gives is not known without running it",
                hint='Write e.g. signature: "question -> answer".',
                path=("dspy",),
            )
        return parse_signature(text)

    def _check_class(self, made: Any) -> None:
        import dspy

        if not (isinstance(made, type) and issubclass(made, dspy.Module)):
            raise SpecError(f"{self.address.name} is not a subclass of dspy.Module", path=("dspy",))

    def _check_predictors(self, known: list[str]) -> None:
        for name in self.config.predictors:
            if name not in known:
                raise SpecError(
                    f"{self.address.name} has no predictor '{name}'",
                    hint=suggest(name, known),
                    path=("predictors", name),
                )

    @cached_property
    def source(self) -> Any:
        return find_class(self.address, self.base)

    @cached_property
    def program(self) -> Any:
        """The module with the instructions and demos of the file. Each run works on a copy."""
        cls: Any = load_user_code(self.config.module, self.base)
        try:
            made = cls(**self.config.arguments)
        except Exception as error:
            raise SpecError(
                f"{self.address.name} cannot be made: {type(error).__name__}: {error}",
                hint="Its keyword arguments go under `arguments`.",
                path=("dspy",),
            ) from error
        for name, predictor in predictors_of(made).items():
            settings = self.config.predictors.get(name)
            if settings is not None and settings.instructions is not None:
                predictor.signature = predictor.signature.with_instructions(settings.instructions)
            if settings is not None and settings.demos is not None:
                predictor.demos = [dict(demo) for demo in settings.demos]
        return made

    @cached_property
    def predictors(self) -> dict[str, DSPyPredictor]:
        """The module's predictors with the settings in force; for an outline, those named in its source or the file."""
        if self.code == "loaded":
            from workbench_dspy.exported.predictor import read_signature

            return {
                name: self._child(
                    name,
                    PredictorConfig(
                        instructions=str(p.signature.instructions),
                        demos=[{k: plain(v) for k, v in dict(d.items()).items()} for d in p.demos],
                    ),
                    read_signature(p.signature),
                )
                for name, p in predictors_of(self.program).items()
            }
        found = dict.fromkeys(self.config.predictors, _EMPTY) | declared_predictors(self.source)
        given = self.config.predictors
        return {
            name: self._child(name, given.get(name, PredictorConfig.model_validate({})), s) for name, s in found.items()
        }

    def _child(self, name: str, config: PredictorConfig, signature: Signature) -> DSPyPredictor:
        return DSPyPredictor(f"predictors.{name}", config, self.base, signature)

    def children(self) -> Mapping[str, NodeKind]:
        return {node.name: node for node in self.predictors.values()}

    @property
    def max_calls(self) -> int:
        return self.config.calls

    async def run(self, inputs: Mapping[str, Any], ctx: Context) -> Mapping[str, Any]:
        from workbench_dspy.module_run import ModuleRun

        return await ModuleRun(self, ctx).run(inputs)
