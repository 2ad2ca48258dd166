"""The quantised engine: C++ sources, and the Python face of its C interface."""
