"""Build a report from records, and derive reports from reports: pure functions, no torch, no files.

Input: the records of a run, from a live process or from a log. Output: a
:class:`~jupyter_graphbreak.report.schema.Report`.
This package may import ``records``, ``knowledge``, ``report`` and ``faults``.
"""
