"""Import paths of modules that have moved: each old path leads to the module at its present path.

Programs, pickles and records name modules by path. A finder before Python's own returns the present module for an old
path, so both names lead to the same module object.
"""

import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from importlib.abc import InspectLoader, Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import CodeType, ModuleType
from typing import cast

__all__ = ["HOMES", "install", "module_at", "present_name"]

HOMES = {
    "agents.as_tool": "agents.running",
    "agents.calling": "agents.tool_calls",
    "agents.contexts": "agents.members",
    "agents.effects": "agents.layers.record",
    "agents.early_stop": "agents.turn",
    "agents.forking": "agents.running",
    "agents.outcomes": "agents.turn",
    "agents.output": "agents.layers.structured_output",
    "agents.results": "agents.layers.long_results",
    "agents.scratchpad": "agents.function",
    "agents.serve": "server.endpoints",
    "agents.layers.deps": "agents.deps",
    "agents.layers.limits": "agents.ledger",
    "agents.layers.member_steps": "agents.member_steps",
    "agents.layers.middleware": "agents.middleware_points",
    "agents.layers.run_options": "agents.run_options",
    "agents.layers.step_checks": "agents.step_checks",
    "agents.layers.tool": "agents.tool_calls",
    "agents.layers.toolsets": "agents.toolsets",
    "agents.layers.typed_output": "agents.typed_output",
    "agents.layers.usage": "agents.ledger",
    "agents.memory.components": "agents.memory.store_memory",
    "agents.memory.turn_taking": "agents.memory.chat_store",
    "agents.memory.window": "agents.memory.turns",
    "durable.lifecycle": "durable.keeper",
    "instrumentation.arguments": "instrumentation.traced",
    "instrumentation.event_handlers": "instrumentation.handlers",
    "instrumentation.events.exception": "instrumentation.events.base",
    "instrumentation.events.span": "instrumentation.events.base",
    "instrumentation.span": "instrumentation.handlers",
    "instrumentation.span_handlers": "instrumentation.handlers",
    "llms._clients": "llms._vendor",
    "llms.call_forms": "llms.lazy_fields",
    "llms.callbacks": "llms.call_tracing",
    "llms.closing": "llms._bridge",
    "llms.gates": "llms.stream",
    "llms.halves": "llms.sdk_body",
    "llms.llm": "llms",
    "llms.native": "llms.stream",
    "llms.partial": "llms.json_text",
    "llms.prompts.mixin": "llms.prompts.base",
    "llms.react_steps": "llms.react_text",
    "llms.registry": "llms.settings",
    "llms.sendable": "llms.blocks",
    "llms.structured_asking": "llms.structured",
    "llms.telling": "llms.call_tracing",
    "llms.tracing": "llms.call_tracing",
    "llms.types": "llms.messages",
    "llms.wrapping": "llms.function_calling",
    "cli.answering": "cli.cmd_approve",
    "cli.briefly": "cli.summary",
    "cli.chatting": "cli.cmd_chat",
    "cli.checking": "cli.cmd_check",
    "cli.completing": "cli.cmd_completions",
    "cli.drawing": "cli.cmd_draw",
    "cli.looking": "cli.cmd_show",
    "cli.objects": "cli.loading",
    "cli.reloading": "cli.cmd_serve",
    "cli.running": "cli.cmd_run",
    "cli.serving": "cli.cmd_serve",
    "cli.telling": "cli.stream_lines",
    "tools.errors": "tools.schema",
    "tools.retrieval": "nodes",
    "tools.tracing": "tools.call",
    "tools.typed_dicts": "tools.schema",
    "agents.shown_state": "agents.layers.shown_state",
    "agents.unfinished": "agents.layers.unfinished",
    "workflow_core.amounts": "values.types",
    "workflow_core.retrying": "retrying",
    "workflow_core.retry_policy": "retry_policies",
    "workflow_core.plugins": "runtime",
    "workflow_core.types": "values.types",
    "workflow_core.resource": "resources",
    "workflow_core.problems": "values.problems",
    "workflow_core.answer_fields": "values.answer_fields",
    "workflow_core.served_input": "new_runs",
    "served_input": "new_runs",
    "workflow_core.engine.commands": "workflow_core.engine.ticks",
    "workflow_core.telling": "values.words",
    "workflow_core.validation.graph_checks": "workflow_core.validation.validate",
    "workflow_core.compat.handler": "workflow_core.earlier",
    "workflow_core.compat.context": "workflow_core.earlier",
    "workflow_core.class_steps": "workflow_core.routing",
    "values.marks": "values.names",
    "workflow_core.engine.waiting": "workflow_core.engine.attempts",
    "workflow_core.context.state_lock": "state_lock",
    "workflow_core.context.state_paths": "values.state_data",
    "workflow_core.at_rest": "durable.at_rest",
    "workflow_core.bridge": "bridge",
    "workflow_core.client": "server.client",
    "workflow_core.clock": "clock",
    "workflow_core.context.containers": "values.containers",
    "workflow_core.context.forms": "values.forms",
    "workflow_core.context.marks": "values.names",
    "workflow_core.context.pickle_serializer": "values.pickle_serializer",
    "workflow_core.context.plans": "values.plans",
    "workflow_core.context.serializers": "values",
    "workflow_core.context.state_edits": "durable.state_edits",
    "workflow_core.context.values": "values.unmarked",
    "workflow_core.counts": "values.counts",
    "workflow_core.compat.payloads": "values.payloads",
    "workflow_core.compat.stepwise": "stepwise",
    "workflow_core.stepwise": "stepwise",
    "workflow_core.context.state_data": "workflow_core.context.state_store",
    "workflow_core.context.telling": "values.words",
    "workflow_core.decorators": "workflow_core.step",
    "workflow_core.draw": "draw",
    "workflow_core.durable": "durable.keeper",
    "workflow_core.engine.progress": "workflow_core.engine.state",
    "workflow_core.engine.waits": "workflow_core.engine.state",
    "workflow_core.engine.calling": "workflow_core.engine.attempts",
    "workflow_core.engine.recording": "workflow_core.engine.attempts",
    "workflow_core.engine.collecting": "workflow_core.context.collecting",
    "workflow_core.engine.stored_run": "workflow_core.run",
    "workflow_core.family": "workflow_core.child_runs",
    "workflow_core.instrumentation": "instrumentation",
    "workflow_core.instrumentation.genai": "llms.genai",
    "workflow_core.instrumentation.summary": "tracing.summary",
    "workflow_core.journal": "durable",
    "workflow_core.journal.bounds": "durable.stores.bounds",
    "workflow_core.journal.desk": "durable.connection",
    "workflow_core.journal.drive": "durable.lease",
    "workflow_core.journal.fold": "durable.recorded_run",
    "workflow_core.journal.folded": "durable.recovery",
    "workflow_core.journal.hints": "durable.stores.hints",
    "workflow_core.journal.in_memory": "durable.stores.memory",
    "workflow_core.journal.owners": "durable.stores.owners",
    "workflow_core.journal.packing": "durable.stores.packing",
    "workflow_core.journal.segments": "durable.attempt_record",
    "workflow_core.journal.sqlite": "durable.stores.sqlite",
    "workflow_core.journal.sqlite_claims": "durable.stores.sqlite_claims",
    "workflow_core.journal.sqlite_commits": "durable.stores.sqlite_commits",
    "workflow_core.journal.sqlite_faults": "durable.stores.sqlite_faults",
    "workflow_core.journal.sqlite_reads": "durable.stores.sqlite_reads",
    "workflow_core.journal.sqlite_rows": "durable.stores.sqlite_rows",
    "workflow_core.journal.sqlite_schema": "durable.stores.sqlite_schema",
    "workflow_core.journal.sqlite_threads": "durable.stores.sqlite_threads",
    "workflow_core.journal.sqlite_upkeep": "durable.stores.sqlite_upkeep",
    "workflow_core.journal.store": "durable.store_protocol",
    "workflow_core.lazy": "lazy",
    "workflow_core.new_runs": "workflow_core.runs",
    "workflow_core.observers": "tracing.observer",
    "workflow_core.otel": "tracing.otel",
    "workflow_core.replay": "durable.replay",
    "workflow_core.representation": "draw.representation",
    "workflow_core.representation.graph_checks": "workflow_core.validation.validate",
    "workflow_core.representation.tree": "workflow_core.validation.tree",
    "workflow_core.representation.validate": "workflow_core.validation.validate",
    "workflow_core.server": "server",
    "workflow_core.state_data": "workflow_core.context.state_store",
    "workflow_core.steps": "workflow_core.routing",
    "workflow_core.testing": "testing",
    "workflow_core.threads": "threads",
    "workflow_core.trace": "durable.trace",
    "workflow_core.user_warnings": "user_warnings",
}
"""Old path -> present path, both below ``batonflow``; a package leads everything below it along."""

_ROOT = "batonflow."


def present_name(name: str) -> str | None:
    """Return the present path of a module, or None when the path is not an old one.

    Args:
        name: A full module name.

    Example:
        >>> present_name("batonflow.workflow_core.draw.svg")
        'batonflow.draw.svg'
    """
    if not name.startswith(_ROOT):
        return None
    path, rest = name.removeprefix(_ROOT), ""
    while path:
        home = HOMES.get(path)
        if home is not None:
            return f"{_ROOT}{home}{rest}"
        path, _, last = path.rpartition(".")
        rest = f".{last}{rest}"
    return None


def _below_present_parents() -> Iterator[tuple[str, str]]:
    """Yield the paths below present packages that ``from old.package import old_module`` looks up."""
    for old, home in HOMES.items():
        parent, _, last = old.rpartition(".")
        present = present_name(_ROOT + parent)
        if present is not None and (path := f"{present.removeprefix(_ROOT)}.{last}") != home:
            yield path, home


HOMES.update(list(_below_present_parents()))


class _Finder(MetaPathFinder, Loader):
    """Finds the modules of old paths."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,  # noqa: ARG002 - as importlib calls it
        target: ModuleType | None = None,  # noqa: ARG002 - as importlib calls it
    ) -> ModuleSpec | None:
        name = present_name(fullname)
        present = None if name is None else find_spec(name)
        if present is None:
            return None
        spec = ModuleSpec(fullname, self, origin=present.origin)
        spec.submodule_search_locations = present.submodule_search_locations
        return spec

    def get_code(self, fullname: str) -> CodeType | None:
        """Return the code that ``python -m`` runs for an old path."""
        name = present_name(fullname)
        spec = None if name is None else find_spec(name)
        return None if spec is None else cast("InspectLoader", spec.loader).get_code(spec.name)

    def create_module(self, spec: ModuleSpec) -> None:  # noqa: ARG002 - Python makes one, to be replaced below
        return None

    def exec_module(self, module: ModuleType) -> None:
        name = present_name(module.__name__)
        assert name is not None
        # Python returns the module that it finds in ``sys.modules`` after the call.
        sys.modules[module.__name__] = import_module(name)


def module_at(package: str, name: str) -> ModuleType:
    """Return the module at an old path, for the ``__getattr__`` of a package that held it.

    Args:
        package: The full name of the package.
        name: The attribute that the package lacks.

    Raises:
        AttributeError: The package never held such a module.
    """
    path = f"{package}.{name}"
    if present_name(path) is None:
        raise AttributeError(f"module {package!r} has no attribute {name!r}")
    return import_module(path)


_finder = _Finder()


def install() -> None:
    """Install the finder; later calls have no effect."""
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)
