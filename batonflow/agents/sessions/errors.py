"""Errors of sessions."""

from batonflow.workflow_core.errors import BatonflowError

__all__ = ["SessionBusyError"]


class SessionBusyError(BatonflowError, RuntimeError):
    """A session has another turn under way.

    Args:
        session: The name of the session.
        run_id: The run of the other turn.
        status: ``"running"``; ``"waiting"`` for a person or an event; ``"interrupted"``, if no process drives it; or
            ``"queued"``, if other messages are waiting.
        remedy: The open question and the way out.
    """

    def __init__(self, session: str, run_id: str, status: str, remedy: str = "") -> None:
        super().__init__(session, run_id, status, remedy)
        self.session, self.run_id, self.status, self.remedy = session, run_id, status, remedy

    def __str__(self) -> str:
        told = f"Session {self.session!r} is busy: run {self.run_id!r} is {self.status}"
        return f"{told}. {self.remedy}" if self.remedy else told
