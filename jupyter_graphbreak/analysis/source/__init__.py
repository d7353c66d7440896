"""Turn the places in code objects into locations in the source, with the names and line numbers that the user sees.

In: the source texts of a recording, and places from code objects. Out: the locations and sources of a report.
May import the records and ``report``.
"""
