# SPDX-License-Identifier: Apache-2.0
"""How the package warns: loudly, and without ending a loop where warnings are errors."""

import sys
import warnings


def warn(text: str, stacklevel: int = 1) -> None:
    """A warning at the place of the caller, or of one further out; a line where warnings are errors."""
    try:
        warnings.warn(f"gnmr: {text}", stacklevel=stacklevel + 1)
    except Warning as refused:
        print(refused, file=sys.stderr)
