"""Backends of frameworks that use the services of the server. Nothing is imported unless an application names it."""
