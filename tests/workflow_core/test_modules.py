"""Every public name is where programs written for LlamaIndex workflows look for it; errors have one root."""

import importlib

import pytest

from batonflow.workflow_core import errors
from tests.contract import contract

MODULES = {
    "": "Workflow step catch_error Context SQLiteStore MemoryStore RunStore RunInfo ReplayedRun RunDiff"
    " StreamResetEvent StoreError RunInUseError RunInputMismatchError RunInterruptedError RunLostError"
    " ReplayIncompatible"
    " StoreCorruptedError UnknownOutcomeError",
    ".workflow": "Workflow",
    ".decorators": "step catch_error StepConfig StepFunction WorkflowGraphCheck StepGraphCheck",
    ".context": "Context PickleSerializer JsonSerializer JsonPickleSerializer",
    ".context.context": "Context",
    ".context.serializers": "BaseSerializer JsonSerializer PickleSerializer JsonPickleSerializer",
    ".context.state_store": "DictState InMemoryStateStore StateStore UnserializableKeyWarning",
    ".events": "Event StartEvent StopEvent InputRequiredEvent HumanResponseEvent InternalDispatchEvent StepStateChanged"
    " StepState UnhandledEvent WorkflowIdleEvent StepFailedEvent WorkflowFailedEvent WorkflowCancelledEvent"
    " WorkflowTimedOutEvent IdleReleasedEvent CollectionReleaseEvent DictLikeModel EventType UnreconstructedException",
    ".errors": "WorkflowValidationError WorkflowConfigurationError WorkflowRuntimeError WorkflowTimeoutError"
    " WorkflowDone WorkflowCancelledByUser WorkflowStepDoesNotExistError ContextSerdeError ContextStateError",
    ".replay": "ReplayedRun ReplayedEvent RunDiff Difference",
    ".handler": "WorkflowHandler",
    ".resource": "Resource ResourceConfig ResourceManager ResourceDefinition ResourceDescriptor",
    ".retry_policy": "RetryPolicy retry_policy ConstantDelayRetryPolicy ExponentialBackoffRetryPolicy",
    ".collect": "Collect Cardinality All Take",
    ".testing": "WorkflowTestRunner",
    ".testing.runner": "WorkflowTestResult",
    ".types": "StopEventT RunResultT",
    ".plugins": "get_current_runtime basic_runtime BasicRuntime",
}


@contract("0.1")
@pytest.mark.parametrize("module", MODULES)
def test_public_names_are_in_their_modules(module: str):
    found = importlib.import_module("batonflow.workflow_core" + module)
    missing = [name for name in MODULES[module].split() if not hasattr(found, name)]
    assert missing == []


@contract("0.1")
def test_the_top_level_lists_what_it_offers():
    core = importlib.import_module("batonflow.workflow_core")
    assert [name for name in core.__all__ if not hasattr(core, name)] == []
    with pytest.raises(AttributeError, match="Nothing"):
        _ = core.Nothing


@contract("12.1")
def test_every_error_has_one_root():
    for name in errors.__all__:
        cls = getattr(errors, name)
        assert issubclass(cls, errors.BatonflowError | UserWarning), name
        assert name in (errors.__doc__ or ""), f"{name} is missing from the tree in the docstring"
    assert not issubclass(errors.WorkflowTimeoutError, TimeoutError)
    assert issubclass(errors.StepTimeoutError, TimeoutError)
    assert issubclass(errors.NoRunningLoopError, RuntimeError)
