"""The route of the page, with its content security policy."""

import re
from functools import cache

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from batonflow.server.page.build import page_html
from batonflow.server.page.policy import policy_of

__all__ = ["content_policy", "page"]

# Scripts that contain only data need no permission.
_INLINED = re.compile(r'<(script|style)(?![^>]*type="application/json")[^>]*>(.*?)</\1\s*>', re.DOTALL | re.IGNORECASE)


def content_policy(html: str) -> str:
    """Return a Content-Security-Policy that allows only the scripts and styles inside the page."""
    inlined: dict[str, list[str]] = {"script": [], "style": []}
    for kind, content in _INLINED.findall(html):
        inlined[kind.lower()].append(content)
    return f"{policy_of(inlined['script'], inlined['style'], connect=_SELF)}; frame-ancestors 'none'"


_SELF = "'self'"


@cache
def _policy() -> str:
    return content_policy(page_html())


async def page(_: Request) -> Response:
    """Answer with the page."""
    return HTMLResponse(page_html(), headers={"Content-Security-Policy": _policy()})
