"""Comments and strings that look like markup."""

import torch


@torch.compile(backend="eager")
def shout(x):
    y = x + 1  # <script>alert("&")</script>
    print("<img src=x onerror=alert(1)>")
    return y


shout(torch.ones(3))
