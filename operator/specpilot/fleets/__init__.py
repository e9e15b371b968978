"""Where targets live: one package per kind of place, each an implementation of the Fleet port."""
