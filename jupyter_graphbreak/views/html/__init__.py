"""Render a report as HTML, and build the widget and the MIME bundle that contain the HTML.

In: a report. Out: HTML. All HTML is generated here; the scripts of ``labextension/`` only add behaviour to it.
May import ``report``, ``views.words``, ``views.rows`` and ``views.text``.
"""
