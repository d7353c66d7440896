"""Read the reports in a notebook's outputs, and run a notebook with every cell explained.

In: the path of a notebook. Out: reports, and an executed copy; the file itself is never written.
May import ``report`` and nbformat; imports nbclient only to run a notebook.
"""
