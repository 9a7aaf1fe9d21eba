"""The texts that agents show to models."""

__all__ = ["EARLY_STOPPING", "MAX_ITERATIONS_REACHED", "STATE_PROMPT", "STRUCTURED_OUTPUT"]

STATE_PROMPT = "The state of the work so far:\n{state}\n\nThe message of the user:\n{msg}\n"

EARLY_STOPPING = (
    "You have used all {max_iterations} steps that this task may take. Do not call any more tools. Answer now with "
    "what you have found so far, and say what is still open."
)

MAX_ITERATIONS_REACHED = (
    "Max iterations of {max_iterations} reached! Either something went wrong, or the task needs more steps: pass a "
    "larger max_iterations to run(), or early_stopping_method='generate' to get an answer from what was found."
)

STRUCTURED_OUTPUT = "Give the answer of the conversation above by calling the tool {name}."
