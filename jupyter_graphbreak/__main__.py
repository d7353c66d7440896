"""``python -m jupyter_graphbreak``: the commands of ``graphbreak``, for a Python whose scripts are not on the path."""

from jupyter_graphbreak.cli import main

if __name__ == "__main__":
    main()
