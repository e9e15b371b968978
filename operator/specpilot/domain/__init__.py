"""The pure core: what is known, what is wanted, and which step comes next.

Nothing here does I/O or reads a clock; import-linter holds it. Everything that decides is
therefore the same for a cluster, for one machine, for replay and for tests.
"""
