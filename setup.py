"Trained weights and guides, which are beside the package in a checkout, become its folder `shipped` in the wheel"

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

SHIPPED = (
    "data/everyday",
    "data/weights/pictograms",
    "data/weights/photographs",
    "nbs/guides",
)
# forms for comparison in studies, to stay below 40 MB; and a guide that runs scripts of the checkout
LEFT_OUT = "official_form", "paper_form", "where_the_time_goes.ipynb", ".ipynb_checkpoints"


class BuildWithShipped(build_py):
    "Copies `SHIPPED` into the built package, not into an editable installation"

    def run(self):
        super().run()
        if self.editable_mode:
            return
        for name in SHIPPED:
            target = Path(self.build_lib) / "dasd_lab" / "shipped" / name
            shutil.rmtree(target, ignore_errors=True)
            shutil.copytree(name, target, ignore=shutil.ignore_patterns(*LEFT_OUT))


setup(cmdclass=dict(build_py=BuildWithShipped))
