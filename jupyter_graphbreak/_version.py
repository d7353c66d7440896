"""The version, in the one place where Python keeps it; labextension/package.json holds the same."""

__version__ = "0.1.0"
