"""Find changes that remove graph breaks, and prove them by running the changed program on copies.

In: entries (compiled callables with copies of their arguments) and the report of their run. Out: remedies,
each with a verdict. May import ``trial``, ``analysis``, ``recording`` and ``_torch_compat``; the
families read text and import none of these.
"""
