"""Measurements of the services of the module `uwsgi`, in one process of each server. They are not part of a whole run."""
