"""Refinement by expected reward (paper, section 5, eq. 8 and 9): after maximum likelihood, training on GLEU."""
