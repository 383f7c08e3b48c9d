"""gunicorn's configuration in Python: its settings, its hooks and its dirty apps."""
