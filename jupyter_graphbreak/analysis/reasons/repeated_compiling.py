"""Say what comes of ``torch.compile`` that is applied to something compiled."""

from __future__ import annotations

_FUNCTION = "only the options of the outer call count"
_MODULE = (
    "the result is a plain function around its forward, without state_dict, parameters or hooks, and only the options "
    "of the outer call count"
)
_OPTIMIZED = "only the options of the inner call count"


def sentence_on_repeated_compiling(name: str, where: str, *, is_module: bool, stays_module: bool) -> str:
    """Return the sentence for one call.

    Parameters
    ----------
    name : str
        The function, or the class of the module.
    where : str
        The place in words, or the empty string.
    is_module, stays_module : bool
        Whether a module was given, and whether the result is one.
    """
    what = f"the compiled module {name}" if is_module else f"{name}, which is compiled already"
    result = _OPTIMIZED if stays_module else _MODULE if is_module else _FUNCTION
    place = f" ({where})" if where else ""
    return f"torch.compile was applied to {what}{place}: {result}. Compile it once."
