"""What ATIF 1.7 allows, by its documentation (https://harborframework.com/docs/trajectory-format, RFC 0001 of Harbor):
no other fields, steps numbered from 1, and results that belong to a call of their own step."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    extra: dict[str, Any] | None = None


class Agent(_Strict):
    name: str
    version: str
    model_name: str | None = None
    tool_definitions: list[dict[str, Any]] | None = None


class Source(BaseModel):
    model_config = ConfigDict(extra="forbid")
    media_type: Literal["image/jpeg", "image/png", "image/gif", "image/webp"]
    path: str


class Part(BaseModel):
    model_config = ConfigDict(extra="forbid")
    type: Literal["text", "image"]
    text: str | None = None
    source: Source | None = None


class ToolCall(_Strict):
    tool_call_id: str
    function_name: str
    arguments: dict[str, Any]


class SubagentRef(_Strict):
    trajectory_id: str | None = None
    session_id: str | None = None
    trajectory_path: str | None = None


class Result(_Strict):
    source_call_id: str | None = None
    content: str | list[Part] | None = None
    subagent_trajectory_ref: list[SubagentRef] | None = None


class Observation(BaseModel):
    model_config = ConfigDict(extra="forbid")
    results: list[Result]


class Metrics(_Strict):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    cost_usd: float | None = None
    prompt_token_ids: list[int] | None = None
    completion_token_ids: list[int] | None = None
    logprobs: list[float] | None = None


class Step(_Strict):
    step_id: int = Field(ge=1)
    timestamp: str | None = None
    source: Literal["system", "user", "agent"]
    model_name: str | None = None
    reasoning_effort: str | float | None = None
    message: str | list[Part]
    reasoning_content: str | None = None
    tool_calls: list[ToolCall] | None = None
    observation: Observation | None = None
    metrics: Metrics | None = None
    is_copied_context: bool | None = None
    llm_call_count: int | None = Field(None, ge=0)

    @model_validator(mode="after")
    def _of_its_source(self) -> Step:
        of_models = (self.model_name, self.reasoning_effort, self.reasoning_content, self.tool_calls, self.metrics)
        assert self.source == "agent" or of_models == (None,) * 5, "a step of the agent alone has these fields"
        assert self.llm_call_count != 0 or self.metrics is self.reasoning_content is None, "no model was asked"
        if self.timestamp is not None:
            datetime.fromisoformat(self.timestamp)
        known = {call.tool_call_id for call in self.tool_calls or ()}
        named = {one.source_call_id for one in self.observation.results} if self.observation else set()
        assert named - {None} <= known, "a result names a call of its own step"
        return self


class FinalMetrics(_Strict):
    total_prompt_tokens: int | None = None
    total_completion_tokens: int | None = None
    total_cached_tokens: int | None = None
    total_cost_usd: float | None = None
    total_steps: int | None = Field(None, ge=0)


class Trajectory(_Strict):
    schema_version: Literal["ATIF-v1.7"]
    session_id: str | None = None
    trajectory_id: str | None = None
    agent: Agent
    steps: list[Step] = Field(min_length=1)
    notes: str | None = None
    final_metrics: FinalMetrics | None = None
    continued_trajectory_ref: str | None = None
    subagent_trajectories: list[Trajectory] | None = None

    @model_validator(mode="after")
    def _numbered(self) -> Trajectory:
        assert [step.step_id for step in self.steps] == [*range(1, len(self.steps) + 1)], "steps are numbered from 1"
        assert all(one.trajectory_id for one in self.subagent_trajectories or ()), "subagents have ids"
        return self
