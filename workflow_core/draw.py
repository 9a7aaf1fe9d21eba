"""placeholder"""
from typing import Any


def workflow_svg(workflow: Any) -> str:
    return ""


def execution_svg(handler: Any) -> str:
    return ""
