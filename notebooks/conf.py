"""Sphinx's configuration: the notebooks of this folder are executed, and a cell that fails stops the build."""

project = "jupyter_graphbreak"
project_copyright = "2026, the jupyter_graphbreak developers"
extensions = ["myst_nb"]
exclude_patterns = ["_build"]

nb_execution_mode = "cache"
nb_execution_raise_on_error = True
nb_execution_timeout = 600
# The pages show a report's HTML, so that they need no widget and none of its scripts from elsewhere.
nb_mime_priority_overrides = [("html", "text/html", 0)]
nb_ipywidgets_js: dict[str, dict[str, str]] = {}
suppress_warnings = ["mystnb.unknown_mime_type"]
