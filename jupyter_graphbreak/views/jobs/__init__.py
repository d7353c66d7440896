"""A job, which is several processes under one command: in words, as text and as HTML.

In: a job. Out: words, text or markup.
May import ``report`` and the views of a single report.
"""
