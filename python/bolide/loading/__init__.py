"""Loading the application: its name, its module, its callable, and the messages when it can't be loaded."""
