"""The routes as an OpenAPI document."""

from typing import Any

__all__ = ["openapi_document"]


def openapi_document(*, compat: bool) -> dict[str, Any]:
    """The document."""
    return {"openapi": "3.1.0", "info": {"title": "batonflow", "version": "1"}, "paths": {}}
