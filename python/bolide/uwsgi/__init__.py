"""uWSGI's Python modules: `uwsgi`, `uwsgidecorators`, and what stands behind their functions."""
