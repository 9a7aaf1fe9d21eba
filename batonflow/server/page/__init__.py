"""The page on which runs are watched: served, written to a file for one run, or shown in a notebook."""

from batonflow.server.page.export import RunView, export_run, page_html, run_page, view_run

__all__ = ["RunView", "export_run", "page_html", "run_page", "view_run"]
