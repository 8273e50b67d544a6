"""Which settings a request to a language model gets."""

from __future__ import annotations

import pytest
from tests.helpers.journal import FakeLM, run

from workbench.errors import PluginError
from workbench.lm import LMPool, split_model
from workbench.plugins import plugins
from workbench.runtime import make_request
from workbench.spec import LMSpec, lm_spec


def test_one_model_for_equal_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[LMSpec] = []
    monkeypatch.setitem(plugins()._tables["lms"], "planted", (lambda rest, spec: made.append(spec) or FakeLM(), "test"))

    async def main() -> None:
        pool = LMPool()
        one = pool.get(lm_spec("planted/a"))
        assert pool.get(lm_spec({"model": "planted/a", "temperature": 0.5, "max_tokens": 9, "timeout": 1.0})) is one
        assert pool.get(LMSpec.model_validate({"model": "planted/a"})) is one
        assert pool.get(lm_spec("planted/b")) is not one
        assert pool.get(lm_spec({"model": "planted/a", "extra": {"x": 1}})) is not one
        again = lm_spec({"model": "planted/a", "max_tokens": 3})
        assert pool.get(again) is one
        await pool.release(lm_spec("planted/a"))
        await pool.release(lm_spec("planted/never-made"))
        assert pool.get(again) is not one and pool.get(again) is pool.get(lm_spec("planted/a"))  # made anew
        await pool.aclose()
        assert pool._made == {}

    run(main)
    assert [s.model for s in made] == ["planted/a", "planted/b", "planted/a", "planted/a"]
    assert split_model("planted:a/b") == ("planted", "a/b") and split_model("planted/a:b") == ("planted", "a:b")
    assert split_model("someone/else") == ("*", "someone/else")
    monkeypatch.delitem(plugins()._tables["lms"], "*")
    with pytest.raises(PluginError, match="no LM provider serves 'someone/else'; known prefixes: .*planted"):
        split_model("someone/else")
    with pytest.raises(PluginError, match="no LM provider serves 'plnted/a'.* Did you mean planted[?]$"):
        split_model("plnted/a")


def test_settings_of_a_request_come_from_the_caller_then_from_the_model() -> None:
    spec = lm_spec({"model": "openai/x", "temperature": 0.7, "max_tokens": 99})
    request = make_request(spec, [{"role": "user", "content": "x"}], 3, {"max_tokens": 5, "top_p": None})
    assert (request.temperature, request.max_tokens, request.top_p, request.replica) == (0.7, 5, 1.0, 3)
    cold = make_request(spec, [{"role": "user", "content": "x"}], 3, {"temperature": 0.0})
    assert (cold.temperature, cold.replica) == (0.0, 0)
