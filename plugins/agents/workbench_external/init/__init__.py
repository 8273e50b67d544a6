"""`workbench agent init`: creates a workflow file from a command and rows, by trial.

begin       the whole process
program     the program as the user starts it, and the folders that it may need
columns     the label and the inputs, by the columns of the rows
hints       how the agent gets its input, according to its source
ways        the ways to pass an input, likeliest first
witness     a start of the agent, with a stand-in for its model
places      the place of an input in a request, and of an answer in the output
trying      one start after the other, until both are known
written     the workflow file, with how each line was found
errors      for agents without a possible workflow file
"""
