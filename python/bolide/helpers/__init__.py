"""Processes beside the request workers that have the application loaded: mules, spoolers, a script."""
