"""The page: one file with all that it needs, and what browsers may do with it."""

import re
from functools import cache
from pathlib import Path

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from batonflow.server.page.policy import policy_of
from batonflow.server.responses import refusal

__all__ = ["content_policy", "page"]

PAGE = Path(__file__).parent / "page" / "page.html"
# Scripts that are only data need no leave.
_INLINED = re.compile(r'<(script|style)(?![^>]*type="application/json")[^>]*>(.*?)</\1\s*>', re.DOTALL | re.IGNORECASE)


def content_policy(html: str) -> str:
    """A Content-Security-Policy under which only the scripts and styles that are in a page count."""
    inlined: dict[str, list[str]] = {"script": [], "style": []}
    for kind, content in _INLINED.findall(html):
        inlined[kind.lower()].append(content)
    return f"{policy_of(inlined['script'], inlined['style'], connect=_SELF)}; frame-ancestors 'none'"


_SELF = "'self'"


@cache
def _read(changed: float) -> tuple[str, str]:  # noqa: ARG001 - read again when the file has changed
    html = PAGE.read_text(encoding="utf-8")
    return html, content_policy(html)


async def page(_: Request) -> Response:
    """The page."""
    try:
        html, policy = _read(PAGE.stat().st_mtime)
    except FileNotFoundError:
        return refusal(404, "The page is not built: run python -m batonflow.server.page.build")
    return HTMLResponse(html, headers={"Content-Security-Policy": policy})
