"""Helpers of the tests on the real program: a server, clients that send raw bytes, and waiting for conditions.

Tests import from here (``tests/conftest.py`` puts ``tests`` on the path); the package does not contain tests.
"""
