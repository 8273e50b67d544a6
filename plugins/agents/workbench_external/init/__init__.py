"""`workbench agent init`: from a command and rows to a workflow file, by trying.

begin       the whole of it
program     the program as the user starts it, and the folders that it may need
columns     the label and the inputs, by the columns of the rows
hints       what the source says of how the agent is fed
ways        the ways in which an input may be handed over, likeliest first
witness     a start of the agent, with a stand-in for its model
places      where an input reached a request, and where an answer came out
trying      one start after the other, until both are known
written     the workflow file, with how each line was found
errors      of agents of which no file can be made
"""
