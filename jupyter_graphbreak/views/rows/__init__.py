"""A report as rows: every label, detail and sentence in reading order, written once for all views.

In: a report. Out: :class:`~jupyter_graphbreak.views.rows.schema.Rows`, which travel with the report to the front end.
May import ``report`` and ``views.words``.
"""
