"""How the process that keeps histories treats the garbage collector."""

import gc


def calm_collector() -> None:
    """Let the collector look less often.

    A round over thousands of pods makes a million objects that reference counting frees again; the
    collector, as it is set by default, goes through all histories several times a round to find
    nothing. With this a round over 20,000 pods took 3.5 s of CPU instead of 6.1. What is really a
    cycle here is an exception now and then, so that little waits for the collector.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(1_000_000, 20, 100)
