"""Reports as frozen data that can be saved as JSON: on a run, on the changes between two runs, on front ends.

In and out: JSON. The field names are a contract with other programs.
Imports no other part of the package.
"""
