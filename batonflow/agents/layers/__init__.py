"""Layers at named points of an agent's loop: around tools, around models, and at a turn's ends.

A layer around a tool takes a :class:`ToolInvocation` and the next layer. The names of other parts of the loop, such as
``keep_tools``, are here too. A module is loaded when one of its names is used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from batonflow._moved import module_at

if TYPE_CHECKING:
    from batonflow.agents.deps import context_with, deps_of_tool, source_of, source_of_team
    from batonflow.agents.layers.acting_agent import acting_agent
    from batonflow.agents.layers.approval import check_approval
    from batonflow.agents.layers.calls_allowed import count_call, refuse_used_up
    from batonflow.agents.layers.form_guard import guard_form
    from batonflow.agents.layers.guards import block_input, block_output, blocked
    from batonflow.agents.layers.hooks import call_hooks
    from batonflow.agents.layers.instructions import system_message
    from batonflow.agents.layers.long_results import cut_result, cut_text, read_result, whole_text
    from batonflow.agents.layers.memory_pattern import fresh_memory
    from batonflow.agents.layers.model_middleware import around_model
    from batonflow.agents.layers.record import make_writable, record_call
    from batonflow.agents.layers.shown_state import with_shown_state
    from batonflow.agents.layers.structured_output import native_form, structured_response
    from batonflow.agents.layers.tool_budget import answer_over_budget, charge_call
    from batonflow.agents.layers.tool_middleware import middleware_around_tool
    from batonflow.agents.layers.turn_middleware import after_run, before_run
    from batonflow.agents.layers.unfinished import close_turn
    from batonflow.agents.member_steps import StepResult, acting_team, call_member_step, overrides_of_members
    from batonflow.agents.middleware_points import checked_instructions, checked_middleware, with_added
    from batonflow.agents.request_changes import changed_requests, forget_changes
    from batonflow.agents.run_options import choice_of_run, instructions_of_run, llm_of_run, options_of_run
    from batonflow.agents.step_checks import check_step, checked_overrides, warn_of_member_steps
    from batonflow.agents.toolsets import asked_tools, keep_tools, kept_tools, leave_toolsets
    from batonflow.agents.typed_output import (
        ask_for_output,
        count_unfit,
        native_output,
        output_tools,
        read_early,
        read_output,
        take_result,
    )

__all__ = [
    "StepResult",
    "acting_agent",
    "acting_team",
    "after_run",
    "answer_over_budget",
    "around_model",
    "ask_for_output",
    "asked_tools",
    "before_run",
    "block_input",
    "block_output",
    "blocked",
    "call_hooks",
    "call_member_step",
    "changed_requests",
    "charge_call",
    "check_approval",
    "check_step",
    "checked_instructions",
    "checked_middleware",
    "checked_overrides",
    "choice_of_run",
    "close_turn",
    "context_with",
    "count_call",
    "count_unfit",
    "cut_result",
    "cut_text",
    "deps_of_tool",
    "forget_changes",
    "fresh_memory",
    "guard_form",
    "instructions_of_run",
    "keep_tools",
    "kept_tools",
    "leave_toolsets",
    "llm_of_run",
    "make_writable",
    "middleware_around_tool",
    "native_form",
    "native_output",
    "options_of_run",
    "output_tools",
    "overrides_of_members",
    "read_early",
    "read_output",
    "read_result",
    "record_call",
    "refuse_used_up",
    "source_of",
    "source_of_team",
    "structured_response",
    "system_message",
    "take_result",
    "warn_of_member_steps",
    "whole_text",
    "with_added",
    "with_shown_state",
]

_LAZY = {
    "StepResult": "..member_steps",
    "acting_agent": ".acting_agent",
    "acting_team": "..member_steps",
    "after_run": ".turn_middleware",
    "answer_over_budget": ".tool_budget",
    "around_model": ".model_middleware",
    "ask_for_output": "..typed_output",
    "check_approval": ".approval",
    "asked_tools": "..toolsets",
    "before_run": ".turn_middleware",
    "block_input": ".guards",
    "block_output": ".guards",
    "blocked": ".guards",
    "call_hooks": ".hooks",
    "call_member_step": "..member_steps",
    "changed_requests": "..request_changes",
    "charge_call": ".tool_budget",
    "check_step": "..step_checks",
    "checked_instructions": "..middleware_points",
    "checked_middleware": "..middleware_points",
    "checked_overrides": "..step_checks",
    "choice_of_run": "..run_options",
    "close_turn": ".unfinished",
    "context_with": "..deps",
    "count_call": ".calls_allowed",
    "count_unfit": "..typed_output",
    "cut_result": ".long_results",
    "cut_text": ".long_results",
    "deps_of_tool": "..deps",
    "forget_changes": "..request_changes",
    "fresh_memory": ".memory_pattern",
    "guard_form": ".form_guard",
    "instructions_of_run": "..run_options",
    "keep_tools": "..toolsets",
    "kept_tools": "..toolsets",
    "leave_toolsets": "..toolsets",
    "llm_of_run": "..run_options",
    "make_writable": ".record",
    "middleware_around_tool": ".tool_middleware",
    "native_form": ".structured_output",
    "native_output": "..typed_output",
    "options_of_run": "..run_options",
    "output_tools": "..typed_output",
    "overrides_of_members": "..member_steps",
    "read_early": "..typed_output",
    "read_output": "..typed_output",
    "read_result": ".long_results",
    "record_call": ".record",
    "refuse_used_up": ".calls_allowed",
    "source_of": "..deps",
    "source_of_team": "..deps",
    "structured_response": ".structured_output",
    "system_message": ".instructions",
    "take_result": "..typed_output",
    "warn_of_member_steps": "..step_checks",
    "whole_text": ".long_results",
    "with_added": "..middleware_points",
    "with_shown_state": ".shown_state",
}


def __getattr__(name: str) -> Any:
    home = _LAZY.get(name)
    if home is None:
        return module_at(__name__, name)
    found = globals()[name] = getattr(import_module(home, __name__), name)
    return found
