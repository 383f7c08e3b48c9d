"""What the tests on the real program share: a server, clients that speak bytes, and waiting for conditions.

Tests import from here (``tests`` is on the path, by its ``conftest.py``); nothing here is a test.
"""
