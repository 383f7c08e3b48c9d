"""The functions that ``uwsgidecorators`` has each new process call.

It knows no decorator. Runs in every process that loads an application.
"""

#: The functions, in the order of their decoration.
postfork_chain = []
