"""Turn a report into rows: sections of labels, details and sentences in reading order.

In: a report. Out: :class:`~jupyter_graphbreak.views.rows.schema.Rows`, which travel with the report to the front end.
May import ``report`` and ``views.words``.
"""
