"""The report as HTML, and as the widget and the mime bundle that carry it.

In: a report. Out: HTML, which is made only here; the scripts of ``labextension/`` add behaviour.
May import ``report``, ``views.words``, ``views.rows`` and ``views.text``.
"""
