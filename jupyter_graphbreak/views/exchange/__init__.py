"""Reports in the formats that other programs show: Markdown for a comment, SARIF for annotations.

In: reports. Out: text. What comes from the code under study is escaped for each format.
May import ``report``, ``views.words`` and ``views.text``.
"""
