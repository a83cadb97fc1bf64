"""Programs of one screen, to be run from the folder above: `python -m examples.NAME`."""

import signal
import sys
from itertools import pairwise

if any(one == "-m" and other.startswith("examples.") for one, other in pairwise(sys.orig_argv)):
    # Ctrl-C ends an example at once and without a traceback, also while its imports go on. What it
    # has in a store is then as safe as after any other end of its process.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
