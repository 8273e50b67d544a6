"""Defects: parts of a valid workflow file that cannot do what they say (`workbench validate --deep`).

Source: the eight kinds of Agentable (Ning et al., arXiv 2412.18371), defects of agents written as programs. Departures:
a workflow file is no program, so each of them became what it can be in a file, which is finer; two kinds of a graph are
added (`unreachable`, `unread_output`); and rules find them, where the paper also asks a language model.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class DefectKind(StrEnum):
    """The kind of a defect. Equal to its text, which is what the command line prints. Plugins may use texts of their
    own."""

    UNDESCRIBED_TOOL = "undescribed_tool"  # the model must guess what it is for
    UNDESCRIBED_ARGUMENT = "undescribed_argument"  # the model must fill it and cannot know with what
    MISMATCHED_TOOL = "mismatched_tool"  # its name or arguments are others than those of its code
    NO_TOOLS = "no_tools"  # an agent with nothing to call
    UNKNOWN_TOOL = "unknown_tool"  # instructions name a tool that is not there
    EMPTY_RESULT = "empty_result"  # a tool that never returns a value
    MISSING_SERVER = "missing_server"  # a command or script that is not there
    IMPOSSIBLE_PATTERN = "impossible_pattern"  # a condition that nothing meets
    CONTRADICTION = "contradiction"  # instructions or demos against the signature
    FEW_TOKENS = "few_tokens"  # max_tokens cuts every right answer
    FEW_STEPS = "few_steps"  # it must end before it can be done
    NO_END = "no_end"  # no way leads to the end
    UNHANDLED_VALUE = "unhandled_value"  # a value for which nothing is to be done
    UNREACHABLE = "unreachable"  # never run, or never taken
    UNREAD_OUTPUT = "unread_output"  # paid for and read by nobody


#: The code of the paper for each kind; the others are defects of a graph, which the paper does not have.
PAPER_CODES = {
    DefectKind.UNDESCRIBED_TOOL: "IETI",
    DefectKind.UNDESCRIBED_ARGUMENT: "IETI",
    DefectKind.MISMATCHED_TOOL: "IETI",
    DefectKind.NO_TOOLS: "IETI",
    DefectKind.UNKNOWN_TOOL: "IETI",
    DefectKind.EMPTY_RESULT: "TRE",
    DefectKind.MISSING_SERVER: "EPDD",
    DefectKind.IMPOSSIBLE_PATTERN: "LOPE",
    DefectKind.CONTRADICTION: "LOPE",
    DefectKind.FEW_TOKENS: "LARD",
    DefectKind.FEW_STEPS: "MNFT",
    DefectKind.NO_END: "MNFT",
    DefectKind.UNHANDLED_VALUE: "MNFT",
}


@dataclass(frozen=True)
class Defect:
    """A finding.

    Args:
        kind: a DefectKind, or a plugin's own text.
        message: what is wrong.
        hint: what to write instead.
        path: where, as keys and list indexes inside the node that found it.
    """

    kind: str
    message: str
    hint: str
    path: tuple[str | int, ...] = ()

    @property
    def code(self) -> str:
        """The paper's code of the kind; empty for a kind that it does not have."""
        return PAPER_CODES.get(DefectKind(self.kind), "") if self.kind in {*DefectKind} else ""
