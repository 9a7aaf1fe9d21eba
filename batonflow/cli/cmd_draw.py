"""``draw``: draw all paths of events through a workflow, as a picture or as Mermaid text."""

from argparse import Namespace
from pathlib import Path

from batonflow.cli.errors import DONE, USAGE, CommandError
from batonflow.cli.loading import load_workflow
from batonflow.cli.output import check_folder, complain, say
from batonflow.draw import draw_all_possible_flows, draw_all_possible_flows_mermaid

__all__ = ["draw"]

_PICTURES = {".html", ".htm", ".svg"}
_TEXTS = {".mermaid", ".mmd", ".md"}


def draw(given: Namespace) -> int:
    """Draw a workflow."""
    workflow = load_workflow(given.object)
    if given.output is None:
        say(draw_all_possible_flows_mermaid(workflow, filename=None).rstrip())
        return DONE
    check_folder(given.output)
    suffix = Path(given.output).suffix.lower()
    if suffix in _PICTURES:
        draw_all_possible_flows(workflow, filename=given.output)
    elif suffix in _TEXTS:
        draw_all_possible_flows_mermaid(workflow, filename=given.output)
    else:
        raise CommandError(f"-o {given.output}: choose a name that ends with .html, .svg or .mermaid", USAGE)
    complain(f"written: {given.output}")
    return DONE
