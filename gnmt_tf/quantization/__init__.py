"""Quantised inference (paper, section 6): row-wise int8 weights, and the arithmetic of the engine that uses them."""
