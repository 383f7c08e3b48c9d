"""The benchmark suite of Bolide: `python3 -m bench`, run from the top of the repository.

It compares Bolide with other servers and with a C program that answers a constant, side by side in one run. It uses the standard
library only and does not depend on Bolide's internals: every server is a command line, a port and a process tree. bench/README.md
explains the figures.
"""
