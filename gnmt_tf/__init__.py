"""GNMT, Google's 2016 neural machine translation system, as a TensorFlow library.

Importing the package opens no file, sets no global and reads no flag.
"""

__version__ = "0.1.0"
