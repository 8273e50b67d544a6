"""The initial agents of a search: the seven of ADAS, as programs. `task` ends where the answer should follow."""

SEEDS: dict[str, tuple[str, str]] = {
    "chain of thought": (
        "Thinking before the answer helps where several steps are needed.",
        """\
def agent(task, inputs):
    thoughts = yield task + "\\nThink step by step. Do not answer yet."
    return (yield "Thoughts: " + thoughts + "\\n" + task)
""",
    ),
    "self-consistency": (
        "Several samples agree on what is right more often than on any one mistake.",
        """\
def agent(task, inputs):
    answers = yield [{"prompt": task, "temperature": 0.8}] * 5
    found = [a.strip() for a in answers if a.strip()]
    return max(found, key=lambda a: (found.count(a), -found.index(a))) if found else ""
""",
    ),
    "self-refine": (
        "A second look finds mistakes of the first one.",
        """\
def agent(task, inputs):
    answer = yield task
    for _ in range(2):
        advice = yield task + " " + answer + "\\nIs this right? Say what is wrong, or write: right"
        if "right" in advice.lower() and len(advice) < 20:
            break
        answer = yield "An earlier answer: " + answer + "\\nAdvice: " + advice + "\\n" + task
    return answer
""",
    ),
    "debate": (
        "Those who see what others say correct themselves.",
        """\
def agent(task, inputs):
    first = yield [{"prompt": task, "temperature": 0.8}] * 3
    said = "\\n".join("Somebody says: " + a for a in first)
    second = yield [{"prompt": said + "\\n" + task, "temperature": 0.4}] * 3
    found = [a.strip() for a in second if a.strip()]
    return max(found, key=lambda a: (found.count(a), -found.index(a))) if found else first[0]
""",
    ),
    "step back": (
        "The general principle first, then the case.",
        """\
def agent(task, inputs):
    principle = yield task + "\\nWhich general principle decides this? Do not answer yet."
    return (yield "Principle: " + principle + "\\n" + task)
""",
    ),
    "quality and diversity": (
        "Different ways to an answer, and a judge who has seen all of them.",
        """\
def agent(task, inputs):
    ways = [(yield task)]
    for _ in range(2):
        seen = "\\n".join("Already tried: " + w for w in ways)
        ways.append((yield {"prompt": seen + "\\nTry another way.\\n" + task, "temperature": 0.8}))
    return (yield "\\n".join("Candidate: " + w for w in ways) + "\\n" + task)
""",
    ),
    "roles": (
        "Another role brings another knowledge; most of them count.",
        """\
def agent(task, inputs):
    roles = ["You are an expert in this.", "You are a careful checker.", "You are a teacher."]
    answers = yield [role + "\\n" + task for role in roles]
    found = [a.strip() for a in answers if a.strip()]
    return max(found, key=lambda a: (found.count(a), -found.index(a))) if found else ""
""",
    ),
}
