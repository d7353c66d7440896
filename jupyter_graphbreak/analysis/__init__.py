"""Build a report from records: pure functions, no torch, no files.

In: the records of a run, from a live process or from a log. Out: a :class:`~jupyter_graphbreak.report.schema.Report`.
May import the records and ``report``.
"""
