"""Render a report as HTML, and build the widget and the MIME bundle that contain the HTML.

Input: a report. Output: HTML. All HTML is generated here; the scripts of ``labextension/`` only add behaviour to it.
This package may import ``report``, ``views.words``, ``views.rows`` and ``views.text``.
"""
