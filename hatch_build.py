"""A wheel carries the built web page. Without it there is no wheel."""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class PageHook(BuildHookInterface):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        page = Path(self.root, "gateway", "page", "index.html")
        if version != "editable" and not page.is_file():
            raise SystemExit("The web page has not been built: run `make page` first.")
