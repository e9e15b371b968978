"""Objects that own pods by controllers of their own: their kinds, and players who act for them.

KubeRay's CRDs are its own, from its Go module. The others cannot be had as Go modules; their kinds
are written here by hand from the documented shape, with the fields that matter.
No owner's controller runs: a player does what it is documented to do with the fields at issue.
"""
