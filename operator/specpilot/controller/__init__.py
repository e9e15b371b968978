"""The loop: collect, evaluate, gate, record, carry out. The same for a cluster and one machine."""
