"""A program and changes of it: as texts, as edits, as a patch, and applied to the functions of this process.

In: the sources of a run, and their new texts. Out: changed functions, for a while or until the kernel ends.
May import ``recording`` and ``analysis``; no torch.
"""
