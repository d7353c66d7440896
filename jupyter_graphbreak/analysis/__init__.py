"""Build a report from records, and derive reports from reports: pure functions, no torch, no files.

In: the records of a run, from a live process or from a log. Out: a :class:`~jupyter_graphbreak.report.schema.Report`.
May import ``records``, ``knowledge``, ``report`` and ``faults``.
"""
