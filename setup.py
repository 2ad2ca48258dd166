"""Packaging: the folders `serving/` and `gnmt_tf/` are installed as one tree."""

from setuptools import find_packages, setup

PACKAGES = [name for name in find_packages(include=["gnmt_tf", "gnmt_tf.*"])]
PACKAGES += ["gnmt_tf.serving"] + ["gnmt_tf.serving." + name for name in find_packages("serving")]

setup(packages=PACKAGES, package_dir={"gnmt_tf": "gnmt_tf", "gnmt_tf.serving": "serving"})
