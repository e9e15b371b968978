"""A kubelet for tests: it runs the pods bound to any node as local processes.

It keeps to what the real kubelet does wherever a rolling update, or the product, can tell: the
environment, volumes at their mount paths, ServiceAccount tokens, probes, back-off, grace periods,
``preStop`` and the reported status. An image is only a name; :class:`~.options.Image` says which
local command stands for it.
"""
