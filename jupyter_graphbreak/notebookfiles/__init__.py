"""Notebook files: the reports in their outputs, and running one with every cell explained.

In: the path of a notebook. Out: reports, and an executed copy; the file itself is never written.
May import ``report`` and nbformat; nbclient where a notebook is run.
"""
