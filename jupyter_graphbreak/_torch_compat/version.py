"""Check that PyTorch is installed and new enough."""

from __future__ import annotations

import re

MINIMUM_TORCH = (2, 9)


class TorchUnavailable(RuntimeError):  # noqa: N818 - reads as the sentence it reports
    """PyTorch is missing or too old; the message says how to install it."""


def require_torch() -> str:
    """Import torch and return its version.

    Raises
    ------
    TorchUnavailable
        If torch cannot be imported or is older than 2.9.
    """
    requirement = ".".join(map(str, MINIMUM_TORCH))
    try:
        import torch
    except ImportError as error:
        raise TorchUnavailable(f"PyTorch is not installed here ({error}): pip install 'torch>={requirement}'") from None
    version = str(torch.__version__)
    numbers = re.match(r"(\d+)\.(\d+)", version)
    # A version without numbers, such as "nightly-1a2b3c", is built from the newest sources.
    if numbers is not None and tuple(map(int, numbers.groups())) < MINIMUM_TORCH:
        raise TorchUnavailable(
            f"PyTorch {version} is too old ({requirement} or newer is needed): pip install -U 'torch>={requirement}'"
        )
    return version
