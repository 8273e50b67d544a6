# langgraph, langchain-openai, pyyaml
import json
import logging
import sys
from pathlib import Path
from typing import TypedDict

import yaml
from langchain_openai import ChatOpenAI
from langgraph.graph import END, START, StateGraph

logging.basicConfig(level=logging.INFO, stream=sys.stdout)
prompts = yaml.safe_load((Path(__file__).parent / "prompts.yaml").read_text())
llm = ChatOpenAI(model="gpt-4o")


class State(TypedDict):
    letter: str
    summary: str
    desk: str


def summarise(state: State) -> dict:
    asked = prompts["summarise"].format(letter=state["letter"])
    return {"summary": llm.invoke(asked).content}


def sort(state: State) -> dict:
    said = llm.invoke([("system", prompts["sort"]), ("user", f"{state['letter']}\n\nSummary: {state['summary']}")])
    return {"desk": said.content}


graph = StateGraph(State)
graph.add_node("summarise", summarise)
graph.add_node("sort", sort)
graph.add_edge(START, "summarise")
graph.add_edge("summarise", "sort")
graph.add_edge("sort", END)
logging.info("started")
found = graph.compile().invoke({"letter": sys.stdin.read().strip()})
Path("answer.json").write_text(json.dumps({"label": found["desk"], "summary": found["summary"][:10]}))
logging.info("wrote answer.json")
