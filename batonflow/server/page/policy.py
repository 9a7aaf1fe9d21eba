"""The content security policy of the page: its own scripts and styles, and nothing else."""

import base64
import hashlib

__all__ = ["policy_of"]


def policy_of(scripts: list[str], styles: list[str], *, connect: str = "") -> str:
    """Return the content security policy of a page with these scripts and styles.

    Args:
        scripts: The contents of its script elements.
        styles: The contents of its style elements.
        connect: Allowed connections; empty to forbid all.

    Example:
        >>> policy_of(["start();"], ["body { margin: 0 }"], connect="'self'")
    """
    rules = [
        "default-src 'none'",
        f"connect-src {connect}" if connect else "",
        "img-src data:",
        f"script-src {_hashes(scripts)}",
        f"style-src {_hashes(styles)}",
        "base-uri 'none'",
        "form-action 'none'",
    ]
    return "; ".join(rule for rule in rules if rule)


def _hashes(texts: list[str]) -> str:
    return " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" for text in texts)
