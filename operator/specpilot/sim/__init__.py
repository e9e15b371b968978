"""A stand-in for ``vllm serve``, and the load to put on it.

The simulator exists so that the demo, the tests and the benchmarks can contradict the product. It
therefore imports nothing else of the package: it learns what an engine accepts and exports from
its own tables (:mod:`.catalogue`, :mod:`.families`), which are held to recordings of real servers.

Layers, innermost first:

- :mod:`.engine` (with :mod:`.costs`, :mod:`.drafts`, :mod:`.stats`): a continuous-batching
  scheduler and a cost model. Pure: the clock is an argument, so it runs in virtual time as well.
- :mod:`.exposition`: the engine's statistics in the metric text of the simulated version.
- :mod:`.arguments`: vLLM's command line, accepted, ignored or refused as that version does.
- :mod:`.replica` and :mod:`.api`: the HTTP server around an engine; :mod:`.process` makes a process
  of one, :mod:`.fleet` runs many in one event loop, :mod:`.virtual` runs many without sockets.
- :mod:`.load`: open-loop load, over HTTP (a real vLLM too) or in virtual time.

Run ``python -m specpilot.sim serve MODEL [vLLM's flags]``; options of the simulator itself begin
with ``--sim-``.
"""
