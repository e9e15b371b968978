"""The contract of the engine: what vLLM 0.32.0 does, and the simulator must do, too.

Each table here is checked against both. The simulator's half runs everywhere; the real half needs
``python scripts/engine/install.py`` and is marked ``engine``. Where they differ, the simulator is
wrong.
"""
