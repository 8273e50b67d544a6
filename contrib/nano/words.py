"""The little world that nano knows: its words, its ticket phrases and the wordings of its instructions.

Everything here is plain data. What is marked HELD is never shown in training: it is kept for measuring.
"""

TOPICS: dict[str, list[str]] = {
    "billing": "invoice charge payment bill receipt fee price tax discount subscription".split(),
    "shipping": "parcel delivery courier package tracking driver shipment box address route".split(),
    "account": [
        *"password login profile username membership".split(),
        *"registration security settings email access".split(),
    ],
    "technical": "screen battery app button software sound camera cable keyboard charger".split(),
    "returns": "refund exchange replacement warranty voucher swap return repair deposit claim".split(),
}
# What can be wrong with any of them: the noun alone tells the topic.
TROUBLES = [
    "is wrong",
    "is not right",
    "is a problem",
    "looks strange",
    "does not work",
    "is still missing",
    "was never confirmed",
    "is not what i expected",
    "was changed without asking",
    "makes no sense to me",
    "stopped again",
    "fails every time",
    "needs to be checked",
    "came too late",
    "is not clear",
    "got lost",
]
# Made-up names of services. Which topic one belongs to differs from prompt to prompt: only examples tell.
CODENAMES = """zorbit plinto kelvo mirax dunto velka tarsi boglu fenzo quilo ravik sompa jutra nexil omdar
pazzo lurvi cobyx wenta yolpa grixo hulda tembo vosti krani belzu dorfa zumpi nalto fipsy""".split()

# {c} is a clause like "my invoice is wrong". A MAIN clause is the open problem, a SIDE clause is not.
MAIN_FRAMES = [
    "{c} and i need help",
    "please help , {c}",
    "now {c}",
    "can you fix this : {c}",
    "today {c}",
    "i write because {c}",
    "my question is that {c}",
    "{c} , what can i do",
]
SIDE_FRAMES = [
    "last month {c} but that is solved",
    "earlier {c} , this is fixed now",
    "my friend says {c} , not me",
    "i know {c} and i do not mind",
    "once {c} , that is over",
    "before , {c} , all good since",
]
HELD_MAIN_FRAMES = ["please fix this today : {c}", "i need help because {c}"]
HELD_SIDE_FRAMES = ["last month {c} , this is over", "my friend says {c} but that is solved"]

URGENCY = {
    "high": [
        "this is urgent",
        "i need it right now",
        "as soon as possible",
        "it cannot wait",
        "very urgent please",
    ],
    "medium": ["some time this week", "in the next days", "not today but soon", "this week is fine"],
    "low": ["no hurry", "whenever you have time", "it can wait", "there is no rush", "take your time"],
}
MOOD = {
    "angry": ["i am furious", "this is terrible", "i am so angry", "what a mess", "i am really upset"],
    "neutral": ["just to let you know", "for your information", "here are the details", "this is my report"],
    "happy": ["thank you so much", "i love your shop", "great service so far", "you are wonderful"],
}
PRODUCTS = "phone laptop tablet printer watch".split()
PRODUCT_FRAMES = ["it is about my {p}", "i have the {p}", "i bought the {p}", "this is for the {p}"]

VERBS = "Classify|Label|Sort|Route|Tag|Assign".split("|")
THINGS = "ticket|message|request|text|mail|customer message|support ticket".split("|")
# Criteria by the reading of the task that they ask for. "topic" and "vague" are ambiguous on purpose.
CRITERIA: dict[str, list[str]] = {
    "main": [
        "by the problem that is still open",
        "by the problem the customer needs solved now",
        "by its open problem",
        "by the current problem",
        "by the issue that needs help now",
        "by the open issue",
        "by its main problem",
        "by what the customer needs now",
        "by the problem to fix now",
        "by the main issue",
    ],
    "side": [
        "by the problem that is already solved",
        "by the old problem",
        "by the issue that is over",
        "by the solved issue",
        "by the problem that needs no help",
        "by the side remark",
    ],
    "first": [
        "by the first topic mentioned",
        "by the topic that comes first",
        "by the first problem in the text",
    ],
    "urgency": [
        "by urgency",
        "by how urgent it is",
        "by how soon the customer needs help",
        "by how fast we must act",
    ],
    "mood": ["by the mood of the customer", "by sentiment", "by tone", "by how the customer feels"],
    "product": [
        "by product",
        "by the device",
        "by the product the customer has",
        "by which device it is about",
    ],
    "topic": [
        "by topic",
        "by subject",
        "by category",
        "by what it is about",
        "for the right team",
        "by theme",
    ],
    "vague": ["", "", "", "with one word", "as usual", "well", "correctly", "as you think best"],
}
HELD_CRITERIA: dict[str, list[str]] = {
    "main": [
        "by the issue the customer needs solved",
        "by the problem that needs help now",
        "by the issue to fix now",
    ],
    "urgency": ["by how soon we must act", "by how fast the customer needs help"],
    "mood": ["by the tone of the customer", "by how angry the customer is"],
    "product": ["by which product it is about", "by the device the customer has"],
}
# How an ambiguous wording is meant, so that it is right only some of the time.
MEANT: dict[str, dict[str, float]] = {
    "topic": {"first": 0.55, "main": 0.33, "side": 0.12},
    "vague": {"first": 0.45, "main": 0.2, "urgency": 0.13, "mood": 0.12, "product": 0.1},
}
HINTS = {
    "main": [
        "Ignore solved problems.",
        "Ignore side remarks.",
        "Problems of the past do not count.",
        "Only the open problem counts.",
    ],
    "side": ["Ignore the open problem.", "Only the solved problem counts."],
}
FILLERS = [
    "You are a support agent.",
    "Answer with one word.",
    "Be careful.",
    "Read the text first.",
    "Be brief.",
    "You are a helpful assistant.",
    "Think before you answer.",
    "Give only the answer.",
    "Do your best.",
    "Follow the examples.",
    "Use only the allowed values.",
    "Look at the examples.",
]
VAGUE = [
    "Answer.",
    "Do the task.",
    "Complete the task.",
    "Give the answer.",
    "Help the user.",
    "Reply.",
    "Give the output.",
    "Continue.",
]

GROUPS: dict[str, list[str]] = {
    "animal": "dog cat horse bird fish cow goat duck frog mouse".split(),
    "fruit": "apple pear plum grape lemon cherry mango banana melon peach".split(),
    "tool": "hammer saw drill knife shovel rope ladder brush nail wrench".split(),
    "color": "red blue green yellow black white brown pink grey purple".split(),
    "place": "paris london berlin rome oslo madrid tokyo cairo lima dublin".split(),
    "vehicle": "car bus train plane ship truck bike tram van boat".split(),
}
WORDS = [word for group in GROUPS.values() for word in group]
NAMES = "Ann Bob Carl Dora Emil Fay Gus Hana Ian Jane Kim Leo Mia Nils Olga Paul Rita Sam Tina Uma".split()
# Names that a label can take when its meaning is to be learned from the examples.
LABELS = [
    *CODENAMES,
    *"A B C D E F X Y Z yes no true false good bad up down left right one two three".split(),
    *WORDS,
]
FIELDS_IN = "text ticket message input request content".split()
FIELDS_OUT = "label answer category class output result".split()

LIST_TASKS: dict[str, list[str]] = {
    "first": ["Give the first word.", "Copy the first word of the list.", "Which word comes first?"],
    "last": ["Give the last word.", "Copy the last word of the list.", "Which word comes last?"],
    "second": ["Give the second word.", "Copy the second word of the list.", "Which word comes second?"],
    "count": ["Count the words.", "How many words are in the list?", "Give the number of words."],
    "animal": ["Give the animal.", "Find the animal in the list.", "Which word is an animal?"],
    "color": ["Give the color.", "Find the color in the list.", "Which word is a color?"],
    "reverse": ["Reverse the list.", "Write the words in reverse order.", "Give the list backwards."],
}
SERVICE_TASKS = [
    "Send the ticket to the right team.",
    "Which team owns the service?",
    "Give the team of the service.",
    "Route the ticket to its team.",
    "Sort the ticket by team.",
    "Assign the ticket to a team.",
]
SUM_TASKS = [
    "Add the numbers.",
    "Give the sum.",
    "What is the sum of the numbers?",
    "Compute the total.",
    "Solve the problem.",
    "Calculate.",
    "Work out the sum.",
]
STEP_HINTS = ["Work step by step.", "Show the steps.", "Take it one step at a time.", "", "", ""]
FACT_TASKS = [
    "Answer the question.",
    "Use the facts to answer.",
    "Answer the question from the facts.",
    "Read the facts and answer.",
    "Look up the answer in the facts.",
]
