"""Reports as frozen data that can be saved as JSON: on a run, on the changes between two runs, on front ends.

Input and output: JSON. The field names are a contract with other programs.
This package imports no other part of the package.
"""
