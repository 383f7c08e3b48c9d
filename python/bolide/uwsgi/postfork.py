"""The functions that ``uwsgidecorators`` has each new process call.

It does not know about decorators. Runs in every process that loads an application.
"""

#: The functions, in the order of their decoration.
postfork_chain = []
