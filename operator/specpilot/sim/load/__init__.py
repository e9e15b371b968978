"""Open-loop load: the same arrivals, whatever the engines make of them.

A closed loop sends less when the engines are slow, and so hides that they are. Here arrivals and
sizes follow from a seed alone; they can be replayed against one fleet after another, over HTTP
(:mod:`.client`; a real vLLM as well) or in virtual time (:mod:`specpilot.sim.virtual`).
"""
