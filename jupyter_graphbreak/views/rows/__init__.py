"""Turn a report into rows: sections of labels, details and sentences in reading order.

Input: a report. Output: :class:`~jupyter_graphbreak.views.rows.schema.Rows`, which travel with the report to the front
end.
This package may import ``report`` and ``views.words``.
"""
