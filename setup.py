"""Packaging: the folders `gnmt_tf/`, `serving/` and `tpu/` are installed as one tree under `gnmt_tf`."""

from pathlib import Path

from setuptools import Distribution, find_packages, setup

# Installed name -> folder. Each of these folders may import gnmt_tf, and gnmt_tf imports none of them.
FOLDERS = {"gnmt_tf": "gnmt_tf", "gnmt_tf.serving": "serving", "gnmt_tf.tpu": "tpu"}

package_dir = {name: folder for name, folder in FOLDERS.items() if Path(folder, "__init__.py").is_file()}
packages = [
    package
    for name, folder in package_dir.items()
    for package in [name, *(f"{name}.{inner}" for inner in find_packages(folder))]
]


class _Distribution(Distribution):
    """With the ops of `make ops` in it, a wheel is for the kind of machine they were built on."""

    def has_ext_modules(self) -> bool:
        return any(Path("gnmt_tf/ops").glob("*.so"))


setup(
    distclass=_Distribution,
    packages=packages,
    package_dir=package_dir,
    package_data={"gnmt_tf": ["py.typed"], "gnmt_tf.ops": ["*.so"]},
)
