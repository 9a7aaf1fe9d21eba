"""Cases: input, model calls, outcomes and result of a run, in one JSON file."""

import json
import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast

from pydantic_core import from_json

from batonflow.bridge import run_on_background_loop
from batonflow.cases.replaying import CaseData, CaseDifferenceError, Rules, run_case
from batonflow.durable.comparison import result_of
from batonflow.durable.history import commits_of, no_such_run
from batonflow.durable.replay import records_of
from batonflow.durable.store_protocol import RunInfo, RunStore, StoredCommit
from batonflow.durable.stores.memory import MemoryStore
from batonflow.durable.trace import plain_event, trace_of
from batonflow.instrumentation.redaction import redacted
from batonflow.llms import ChatMessage, ModelCall
from batonflow.workflow_core.errors import BatonflowError
from batonflow.workflow_core.workflow import Workflow

__all__ = ["FORMAT", "Case", "CaseDifferenceError", "CaseError", "case_of_run", "read_cases"]

FORMAT: Final = 1
"""The version of the format of files."""

_PARTS: Final[Mapping[str, type]] = {
    **dict.fromkeys(("workflow", "run"), str),
    **dict.fromkeys(("start", "state", "messages", "tools", "calls", "outcomes", "answers"), list),
}
_NAME = re.compile(r"[^\w.-]+")


class CaseError(BatonflowError, ValueError):
    """The error for a run that cannot become a case, and for a file without a case."""


@dataclass(frozen=True)
class Case:
    """A run as a test case.

    Attributes:
        name: The name; that of the file without its ending.
        data: The content of the file.
        live: Whether ``replay`` asks the real models, as ``pytest --live`` wants.

    Example:
        >>> case = Case.read("cases/tides-1.json")
        >>> answer = await case.replay(agent)
    """

    name: str
    data: CaseData = field(repr=False)
    live: bool = False

    @classmethod
    def read(cls, path: str | os.PathLike[str], *, live: bool = False) -> "Case":
        """Read a case from its file.

        Args:
            path: The file.
            live: Whether ``replay`` asks the real models.

        Raises:
            CaseError: There is no such file, or it does not hold a case of this format.
        """
        path = Path(path)
        try:
            data: Any = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise CaseError(f"there is no case {path}: write one with `batonflow case save RUN`") from None
        except OSError as error:
            raise CaseError(f"{path} cannot be read: {error.strerror}") from None
        except ValueError as error:
            raise CaseError(f"{path} is not a case: {error}") from error
        if not isinstance(data, dict) or cast("CaseData", data).get("format") != FORMAT:
            raise CaseError(f"{path} is not a case of format {FORMAT}: save the run again with `batonflow case save`")
        for part, kind in _PARTS.items():
            if not isinstance(cast("CaseData", data).get(part), kind):
                raise CaseError(
                    f"{path} has no {part!r} as a case has it: save the run again with `batonflow case save`"
                )
        return cls(path.stem, cast("CaseData", data), live)

    def write(self, folder: str | os.PathLike[str], *, replace: bool = False) -> Path:
        """Write the case into a folder, which is made at need, and return its file.

        Args:
            folder: The folder.
            replace: Whether a file of the same name may be replaced.

        Raises:
            CaseError: There is such a file.
        """
        path = Path(folder) / f"{self.name}.json"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except FileExistsError:
            raise CaseError(f"{path.parent} is a file, and cases lie in a folder: name another") from None
        text = json.dumps(self.data, indent=1, ensure_ascii=False)
        try:
            with path.open("w" if replace else "x", encoding="utf-8", errors="backslashreplace") as file:
                file.write(f"{text}\n")
        except FileExistsError:
            raise CaseError(f"there is a case {path} already: name another, or replace it with --force") from None
        return path

    @property
    def workflow(self) -> str:
        """The name of the workflow."""
        return self.data["workflow"]

    @property
    def input(self) -> dict[str, Any]:
        """The fields of the start event, as data."""
        return plain_event(self.data["start"])[1]

    @property
    def result(self) -> Any:
        """The result of the run as data, without ids and totals; for an agent its response."""
        return result_of(self.data["result"])

    @property
    def calls(self) -> list[ModelCall]:
        """The calls of models, in the order of their records."""
        return [_model_call(self.data, call) for call in self.data["calls"]]

    async def replay(
        self,
        workflow: Workflow[Any] | Callable[[], Workflow[Any]],
        *,
        run_tools: bool | Collection[str] = False,
        effects: bool = False,
        ignore: Sequence[str] = (),
        **options: Any,
    ) -> Any:
        """Run the workflow from the input of the case, and return its result.

        The models are not asked: each request is compared with the next recorded one, and gets its recorded answer.
        Tools, effects and people give their recorded results and answers. A tool call that the case does not hold runs.

        Args:
            workflow: The workflow, agent or team, or a function that makes it. Models need no key inside the function.
            run_tools: The names of tools that run instead of their recorded results; True for all tools except the
                calls that a person had to approve.
            effects: Whether functions of ``ctx.effect`` run that the case does not hold.
            ignore: Regular expressions for texts that may differ, such as dates.
            options: Further options of ``run``, such as ``deps``.

        Raises:
            CaseDifferenceError: The run differs from the case; the text shows the first difference.
            StoreError: The class of a recorded value is not loaded.

        Example:
            >>> answer = await case.replay(agent, ignore=["run [0-9]+"])
        """
        __tracebackhide__ = True
        rules = Rules(run_tools=run_tools, effects=effects, ignore=ignore, strict=not self.live)
        try:
            done = await run_case(self.name, self.data, workflow, rules, MemoryStore(), self.data["run"], options)
            return done.value()
        except CaseDifferenceError as difference:
            raise difference.with_traceback(None) from difference.__cause__

    def replay_sync(self, workflow: Workflow[Any] | Callable[[], Workflow[Any]], **options: Any) -> Any:
        """Replay in synchronous code; see ``replay``.

        Args:
            workflow: The workflow, agent or team, or a function that makes it.
            options: The options of ``replay``.

        Example:
            >>> def test_tides(case):
            ...     assert "noon" in str(case.replay_sync(agent))
        """
        __tracebackhide__ = True
        try:
            return run_on_background_loop(lambda: self.replay(workflow, **options))
        except CaseDifferenceError as difference:
            raise difference.with_traceback(None) from difference.__cause__


def _model_call(data: CaseData, call: CaseData) -> ModelCall:
    messages = [ChatMessage.model_validate(one) for one in data["messages"]]
    refers: dict[str, list[int]] = {name: call[name] for name in ("messages", "answer") if name in call}
    found = {name: [messages[number] for number in numbers] for name, numbers in refers.items()}
    tools = [data["tools"][number] for number in call.get("tool_specs", ())]
    return ModelCall.from_data({**call, **found, "tool_specs": tools}, lambda value: value)


def read_cases(*folders: str | os.PathLike[str], live: bool = False) -> list[Case]:
    """Read all cases of folders, in the order of their names.

    Args:
        folders: The folders, or single files.
        live: Whether their ``replay`` asks the real models.

    Raises:
        CaseError: A folder has no cases, or a file does not hold one.
    """
    found: list[Case] = []
    for folder in map(Path, folders):
        paths = [folder] if folder.is_file() else sorted(folder.glob("*.json"))
        if not paths:
            raise CaseError(f"there are no cases in {folder}: write one with `batonflow case save RUN --to {folder}`")
        found += [Case.read(path, live=live) for path in paths]
    return found


# --- a case of a run --------------------------------------------------------------------------------------------------


async def case_of_run(store: RunStore, run_id: str, *, name: str = "", needs_result: bool = True) -> Case:
    """Return a stored run as a case, without its code. Likely secrets are replaced, as in the records of calls.

    Args:
        store: The store.
        run_id: The run.
        name: The name of the case; by default the id of the run.
        needs_result: Whether the run must be completed.

    Raises:
        StoreError: The store has no such run.
        CaseError: The run cannot become a case; the message says why, and what to do.

    Example:
        >>> (await case_of_run(store, "tides-1")).write("cases")
    """
    info = await store.info(run_id)
    if info is None:
        raise no_such_run(run_id)
    if needs_result:
        _check_completed(info)
    commits = [commit async for commit in commits_of(store, run_id)]
    records = records_of(commits)
    _check_beginning(run_id, records)
    data: CaseData = {
        "format": FORMAT,
        "workflow": info.workflow,
        "run": run_id,
        "start": records[0]["event"],
        "state": records[0].get("state", []),
        **_Calls(commits).as_data(run_id),
        "outcomes": _outcomes(records),
        "answers": _answers(records),
        "result": None if info.result is None else from_json(info.result).get("event"),
    }
    return Case(_NAME.sub("-", name or run_id).strip("-.") or "case", redacted(data))


def _check_completed(info: RunInfo) -> None:
    if not info.is_over:
        raise CaseError(
            f"run {info.run_id!r} is not over, and a case holds a result: answer its questions with "
            f"`batonflow approve {info.run_id}`, and finish it with `batonflow resume OBJ {info.run_id}`"
        )
    if info.status != "completed":
        raise CaseError(
            f"run {info.run_id!r} is {info.status}, and a case holds the result of a completed run: save another run, "
            f"or try a change with `batonflow try OBJ {info.run_id}`"
        )


def _check_beginning(run_id: str, records: Sequence[Mapping[str, Any]]) -> None:
    if not records or records[0]["kind"] == "restored":
        raise CaseError(f"run {run_id!r} began from a snapshot, and a case needs an input: save the run before it")
    if records[0]["kind"] != "started":
        raise CaseError(f"the first records of run {run_id!r} were removed by compact(): save a run that has them")
    if any(record["kind"] == "edited" for record in records):
        raise CaseError(
            f"the state of run {run_id!r} was changed from outside, so its input does not lead to its result: save the "
            "run that it was forked from"
        )


class _Calls:
    """The calls of models of a run, whose messages and tools are written once."""

    def __init__(self, commits: Iterable[StoredCommit]) -> None:
        self._known: dict[str, tuple[list[Any], dict[str, int]]] = {"messages": ([], {}), "tools": ([], {})}
        self._calls: list[CaseData] = []
        self._has_agents = False
        for entry in trace_of(list(commits)):
            for call in entry.get("calls", ()):
                parts = {name: self._numbers(name, call[name]) for name in ("messages", "tool_specs") if name in call}
                if "answer" in call:
                    parts["answer"] = self._numbers("messages", [call["answer"]])
                self._calls.append({**call, **parts})
            self._has_agents |= any(event["type"] == "AgentOutput" for event in entry.get("events", ()))

    def _numbers(self, name: str, items: Sequence[Any]) -> list[int]:
        listed, numbers = self._known["tools" if name == "tool_specs" else name]
        found: list[int] = []
        for item in items:
            key = json.dumps(item, sort_keys=True)
            if key not in numbers:
                numbers[key] = len(listed)
                listed.append(item)
            found.append(numbers[key])
        return found

    def as_data(self, run_id: str) -> CaseData:
        """Return the calls as data.

        Raises:
            CaseError: The calls were not recorded, or without their messages.
        """
        if not self._calls and self._has_agents:
            raise CaseError(
                f"the calls of models of run {run_id!r} were not recorded: a model of your own is recorded if it "
                "implements _stream; run the agent again with such a model"
            )
        if any("messages" not in call for call in self._calls):
            raise CaseError(
                f"the store of run {run_id!r} does not keep the messages of calls: run it again with a SQLite store"
            )
        return {"messages": self._known["messages"][0], "tools": self._known["tools"][0], "calls": self._calls}


def _outcomes(records: Sequence[Mapping[str, Any]]) -> list[CaseData]:
    """Return the results of tools, of ``ctx.effect`` and of ``ctx.once``."""
    found: list[CaseData] = []
    intents: dict[tuple[str, int, str], Any] = {}
    calls_inside = _calls_inside(records)
    asked = {(record["path"], record["item"], record["key"]) for record in records if record["kind"] == "answered"}
    by_id = {record["id"]: record for record in records}
    began = {
        (record["path"], record["item"]): record["origins"]
        for record in reversed(records)
        if record.get("origins") and record["kind"] == "segment"
    }
    for record in records:
        kind, *details = record.get("outcome", ("",))
        if kind == "intent":
            intents[record["path"], record["item"], details[0][0]] = details[0][1]
        if kind != "once" or re.search(r"\[\d+\]$", details[0][0]):  # the functions of map run in a replay, too
            continue
        path, item, (key, value) = record["path"], record["item"], details[0]
        intent = intents.pop((path, item, key), None)
        found.append(
            {
                "path": path,
                "step": record["step"],
                "key": key,
                "is_effect": intent is not None,
                "about": None if intent is None else intent.get("about"),
                "inside": any(place[:2] == (path, item) for place in intents),
                "event": _origin(by_id, began.get((path, item), ())),
                "value": value,
                "writes": [[at, written] for _, at, written in record.get("writes", ()) if written is not None],
                "calls": calls_inside(record, key),
                "approved": (path, item, f"approval {key.removeprefix('tool ')}") in asked,
            }
        )
    return found


def _calls_inside(records: Sequence[Mapping[str, Any]]) -> Callable[[Mapping[str, Any], str], list[int]]:
    """Return a function of a record and a key. It gives the numbers of the model calls inside, also in child runs."""
    paths = [(record["path"], record["id"]) for record in records for _ in record.get("calls", ())]
    begun: list[tuple[str, tuple[str, int, str]]] = []
    for record in records:
        child: Any = record.get("child") or {}
        call: Any = child.get("call")
        if record["kind"] == "started" and call is not None and not isinstance(call[1], int):
            begun.append((record["path"], (record["path"].rpartition("/")[0], call[0], call[1][0])))

    def find(record: Mapping[str, Any], key: str) -> list[int]:
        place = record["path"], record["item"], key
        inner = [path for path, caller in begun if caller == place]
        return [
            number
            for number, (path, record_id) in enumerate(paths)
            if record_id == record["id"] or any(path == one or path.startswith(f"{one}/") for one in inner)
        ]

    return find


def _origin(by_id: Mapping[int, Mapping[str, Any]], origins: Sequence[Sequence[int]]) -> Any:
    """Return the event of a delivery as data; None if the records do not tell it."""
    for record_id, number in origins:
        record = by_id.get(record_id, {})
        if number == 0:
            return record.get("event")
        if number > 0:
            return next((event for sent, event, *_ in record.get("sends", ()) if sent == number), None)
        returned = record.get("outcome", ("",))
        if returned[0] == "returned" and len(returned) > 1 and len(returned[1]) >= -number:
            return returned[1][-number - 1]
    return None


def _answers(records: Sequence[Mapping[str, Any]]) -> list[CaseData]:
    """Return the events that were sent to the run, with the questions that they answer."""
    waits: dict[tuple[str, int, str], Any] = {}
    answered: dict[int, Mapping[str, Any]] = {}
    for record in records:
        if record.get("outcome", ("",))[0] == "waiting":
            waiter = record["outcome"][1]
            waits[record["path"], record["item"], waiter["key"]] = waiter["question"]
        if record["kind"] == "answered":
            answered.update((origin, record) for origin, _ in record.get("origins", ()))
    found: list[CaseData] = []
    for record in records:
        if record["kind"] == "input":
            taken = answered.get(record["id"])
            question = None if taken is None else waits.get((taken["path"], taken["item"], taken["key"]))
            path = record["path"] if taken is None else taken["path"]
            found.append({"path": path, "question": question, "event": record["event"]})
    return found
