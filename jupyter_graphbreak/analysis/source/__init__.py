"""Say where something stands in the source, as its reader counts and names it.

In: the source texts of a recording, and places as code objects have them. Out: locations and sources of a report.
May import the records and ``report``.
"""
