"""The rows of the table, by topic; `specpilot.engines.capabilities` puts them together.

Sources are the releases themselves: the fields of `SpeculativeConfig`, its method names, and the
flags of `engine/arg_utils.py`, compared between 0.4.1, 0.4.2, 0.4.3, 0.5.5, 0.6.6, 0.7.3, 0.8.2,
0.8.5, 0.9.0, 0.9.2, 0.10.0, 0.10.1, 0.10.2 and every minor release from 0.11 to 0.33 except 0.15
(so "since 0.17.0" means: absent in 0.16.0, present in 0.17.0). `#N` is a pull request or issue of
vllm-project/vllm. Where a boundary or an effect was not seen in the code, the row is `inferred`.
"""
