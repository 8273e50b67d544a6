"""The quickstart of LangGraph: a model with a tool, in a loop, as a program that labels a text."""

import json
import sys

from langchain_core.messages import SystemMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition


@tool
def look_up(words: str) -> str:
    """Looks words up in the office's list of kinds of post."""
    return "Kinds: a, b, c, d. A b-thing is of the kind b."


model = ChatOpenAI(model="gpt-4o-mini").bind_tools([look_up])
prompt = SystemMessage("You sort the post of an office. Name the kind of the text: a, b, c or d.")


def call_model(state: MessagesState):
    return {"messages": [model.invoke([prompt, *state["messages"]])]}


graph = StateGraph(MessagesState)
graph.add_node("model", call_model)
graph.add_node("tools", ToolNode([look_up]))
graph.add_edge(START, "model")
graph.add_conditional_edges("model", tools_condition)
graph.add_edge("tools", "model")
state = graph.compile().invoke({"messages": [("user", json.load(sys.stdin)["text"])]})
print(state["messages"][-1].content)
