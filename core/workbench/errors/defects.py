"""Defects: parts of a valid workflow file that cannot work as written (`workbench validate --deep`).

Source: the eight kinds of Agentable (Ning et al., arXiv 2412.18371), defects of agents written as programs. Departures:
a workflow file is no program, so each kind was adapted to files, in finer kinds; two kinds for graphs are added
(`unreachable`, `unread_output`); and rules find them, where the paper also asks a language model.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class DefectKind(StrEnum):
    """The kind of a defect. Equal to its text, which the command line prints. Plugins may use texts of their own."""

    UNDESCRIBED_TOOL = "undescribed_tool"  # the model must guess its purpose
    UNDESCRIBED_ARGUMENT = "undescribed_argument"  # the model must fill it without knowing its meaning
    MISMATCHED_TOOL = "mismatched_tool"  # its name or arguments differ from those of its code
    NO_TOOLS = "no_tools"  # an agent with nothing to call
    UNKNOWN_TOOL = "unknown_tool"  # instructions name a missing tool
    EMPTY_RESULT = "empty_result"  # a tool that never returns a value
    MISSING_SERVER = "missing_server"  # a missing command or script
    IMPOSSIBLE_PATTERN = "impossible_pattern"  # a condition that can never be met
    CONTRADICTION = "contradiction"  # instructions or demos contradict the signature
    FEW_TOKENS = "few_tokens"  # max_tokens cuts every right answer
    FEW_STEPS = "few_steps"  # it must end before it can be done
    NO_END = "no_end"  # no way leads to the end
    UNHANDLED_VALUE = "unhandled_value"  # a value that no case handles
    UNREACHABLE = "unreachable"  # never run, or never chosen
    UNREAD_OUTPUT = "unread_output"  # paid for and never read


#: The paper's code for each kind. The others are defects of a graph, which the paper does not have.
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
        message: the error.
        hint: what to write instead.
        path: its location, as keys and list indexes inside the node that found it.
    """

    kind: str
    message: str
    hint: str
    path: tuple[str | int, ...] = ()

    @property
    def code(self) -> str:
        """Return the paper's code of the kind; empty if the paper does not have it."""
        return PAPER_CODES.get(DefectKind(self.kind), "") if self.kind in {*DefectKind} else ""
