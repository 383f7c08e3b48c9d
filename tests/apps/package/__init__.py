"""A package with an application in one of its modules."""
