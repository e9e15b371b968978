"""Decides from live measurements when speculative decoding pays, and switches it safely."""

__version__ = "0.1.0"
