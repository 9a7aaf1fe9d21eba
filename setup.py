"""Build the page of the server into the wheel; pyproject.toml has everything else."""

import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).parent
sys.path.insert(0, str(ROOT))

from batonflow.server.page.build import built  # noqa: E402 - found through the line above

PAGE = Path("batonflow", "server", "page", "page.html")


class BuildWithPage(build_py):
    """Copy the modules, and write the page beside them."""

    def run(self) -> None:
        """Copy the modules and write the page."""
        super().run()
        # A checkout builds its page at first use, so that it always shows the present sources.
        if not self.editable_mode:
            Path(self.build_lib, PAGE).write_text(built(), encoding="utf-8")

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        """List the files of the wheel, with the page."""
        page = [] if self.editable_mode else [str(Path(self.build_lib, PAGE))]
        return [*super().get_outputs(include_bytecode), *page]


setup(cmdclass={"build_py": BuildWithPage})
