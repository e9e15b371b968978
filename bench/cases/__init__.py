"""How the shipped rule packs, and simpler rules, judge published cases of speculative decoding."""
