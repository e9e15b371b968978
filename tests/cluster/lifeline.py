"""Starts a program that cannot outlive its parent: ``python lifeline.py PARENT PROGRAM ARGS...``.

The kernel kills the program when the process that started it ends in any way, SIGKILL included, so
an aborted test run leaves nothing behind. The request survives ``exec``, hence this costs no
process of its own. Standard library only: it runs isolated (``python -I -S``).
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def die_with(parent: int) -> None:
    """Ask for SIGKILL when the parent ends; exit now if it has ended already."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    if os.getppid() != parent:
        sys.exit(1)


if __name__ == "__main__":
    die_with(int(sys.argv[1]))
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it, programs expect the default
    os.execvp(sys.argv[2], sys.argv[2:])
