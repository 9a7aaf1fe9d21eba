"""The texts that agents show to models."""

__all__ = [
    "AGENT_AS_TOOL",
    "APPROVAL_DENIED",
    "APPROVAL_EXPIRED",
    "BUDGET_CUT_OFF",
    "BUDGET_EXCEEDED",
    "BUDGET_USED_UP",
    "CALL_CUT_OFF",
    "CALL_DECLINED",
    "CALL_NOT_WHOLE",
    "CODE_ACT",
    "CODE_ACT_SANDBOXED",
    "CODE_NOTHING",
    "CODE_NOT_AWAITED",
    "CODE_NOT_RUN",
    "CODE_NO_TEXT",
    "CODE_OVER",
    "CODE_RESULT",
    "CODE_VARIABLES_GONE",
    "EARLY_STOPPING",
    "FINAL_ANSWER_TOOL",
    "GOES_ON",
    "HANDOFF_CARRIED",
    "HANDOFF_CARRIED_SUMMARY",
    "HANDOFF_DONE",
    "HANDOFF_NOT_CALLED",
    "HANDOFF_NOT_PERMITTED",
    "HANDOFF_PROMPT",
    "HANDOFF_SUMMARY",
    "HANDOFF_TOO_OFTEN",
    "HANDOFF_UNKNOWN",
    "MAX_ITERATIONS_REACHED",
    "NO_STEPS_LEFT",
    "ONE_HANDOFF",
    "OUTPUT_FORM",
    "OUTPUT_NOT_REACHED",
    "OUTPUT_NOT_READ",
    "OUTPUT_UNFIT",
    "PAUSED_TOO_OFTEN",
    "REACT_EMPTY",
    "REACT_GIVEN_UP",
    "REACT_THOUGHT_ALOUD",
    "REACT_UNREADABLE",
    "RESULT_CUT",
    "RESULT_CUT_OFF",
    "RESULT_END",
    "RESULT_UNKNOWN",
    "STATE_PROMPT",
    "TOOL_DENIED",
    "TOOL_NOT_REPEATED",
    "TOOL_OUTCOME_UNKNOWN",
    "TOOL_USED_UP",
    "TURN_CUT_OFF",
]

STATE_PROMPT = "The state of the work so far:\n{state}\n\nThe message of the user:\n{msg}\n"

EARLY_STOPPING = (
    "You have used all {max_iterations} steps that this task may take. Do not call any more tools. Answer now with "
    "what you have found so far, and say what is still open."
)

MAX_ITERATIONS_REACHED = (
    "Max iterations of {max_iterations} reached! Either something went wrong, or the task needs more steps: pass a "
    "larger max_iterations to run(), or early_stopping_method='generate' to get an answer from what was found."
)

HANDOFF_PROMPT = (
    "Hand the task over to another agent when it is better suited for what comes next. Give its name and the reason; "
    "it sees the whole conversation and goes on from there. The agents you can hand over to:\n{agent_info}\n"
)

HANDOFF_DONE = (
    "The task has been handed over: agent {to_agent} is in charge now, for this reason: {reason}.\n"
    "Go on with the conversation from here."
)

HANDOFF_UNKNOWN = "Agent {to_agent} not found. Please select a valid agent to hand over to. Valid agents: {valid}."

HANDOFF_NOT_PERMITTED = (
    "Agent {from_agent} may not hand over to {to_agent}. Please select a valid agent to hand over to. Valid agents: "
    "{valid}."
)

HANDOFF_TOO_OFTEN = "The task has been handed over {limit} times, no more is allowed. Finish it yourself."

NO_STEPS_LEFT = "Not done: this task may take no more steps."

CALL_NOT_WHOLE = (
    "Not done: the answer reached the limit of its length before this call was whole. Call the tool again, with less "
    "in one answer."
)

CALL_DECLINED = "Not done: the answer was ended before it was whole ({reason})."

ONE_HANDOFF = (
    "Not done: the task goes to one agent at a time, and another handoff was asked for before in the same turn."
)

PAUSED_TOO_OFTEN = "Agent {name}: the model paused its answer {times} times in a row without coming to an end."

_REACT_FORMS = (
    "Write either\nThought: ...\nAction: the name of a tool\nAction Input: its arguments as a JSON object\n"
    "or\nThought: ...\nAnswer: the answer"
)

REACT_EMPTY = f"FAILURE: Your previous response was empty. {_REACT_FORMS}"

REACT_UNREADABLE = f"Error while parsing the output: {{error}}\n\n{_REACT_FORMS}"

REACT_THOUGHT_ALOUD = "I have thought about it."

REACT_GIVEN_UP = (
    "Agent {name}: the model did not keep to the form {failures} times in a row. The last thing it was told:\n{words}"
)

APPROVAL_DENIED = "Tool {tool_name} was not run, a person denied it{because}."

APPROVAL_EXPIRED = "Tool {tool_name} was not run: approval expired."

TOOL_NOT_REPEATED = (
    "Tool {tool_name} was interrupted, and it is not known from its result whether it did its work. A person decided "
    "not to run it again{because}."
)

TOOL_OUTCOME_UNKNOWN = (
    "Tool {tool_name} was interrupted, and nobody knows whether it did its work. Do not assume that it did or that it "
    "did not."
)

_CODE_FORM = (
    "You solve tasks by writing Python code. Put code that is to be run between <execute> and </execute>, for "
    "example:\n\n<execute>\ntotal = 17 * 23\nprint(total)\n</execute>\n\n"
    "You are shown what it printed, and can then go on with more code. Do not guess what code gives: run it and wait "
    "for the result. When you know the answer, write it in plain text, without an <execute> block."
)

CODE_ACT = (
    f"{_CODE_FORM}\n\nBeside the standard library, your code can call these functions:\n\n{{tool_descriptions}}\n"
)

CODE_ACT_SANDBOXED = (
    f"{_CODE_FORM} Then the variables are gone.\n\n{{hints}}\n\n"
    "Your code can call these functions, each with await:\n\n{tool_descriptions}\n"
)

CODE_RESULT = "Result of executing the code given:\n\n{content}"

CODE_NOTHING = "The code ran to its end and printed nothing. Print what you want to see, or end with an expression."

CODE_NOT_AWAITED = "What is shown as <coroutine ...> was not awaited: write `await` before the call."

CODE_NOT_RUN = "Nothing was run, as this would not work:\n{problems}"

CODE_NO_TEXT = (
    "Nothing was run, as line {line} holds half of a character ({half}). Write the character whole, or as an escape."
)

CODE_OVER = "Not waited for: the code ended before this call did."

CODE_VARIABLES_GONE = "The interpreter was started anew: the variables of earlier code are gone."

RESULT_CUT = "[Characters up to {shown} of {size}. To read on call {tool} with handle={handle!r} and offset={shown}.]"

RESULT_CUT_OFF = "[The first {shown} of {size} characters.]"

RESULT_END = "[The end: {size} characters.]"

RESULT_UNKNOWN = "There is no result under the handle {handle!r}. Handles: {known}."

TOOL_DENIED = "Tool {tool_name} was not run: {reason}"

TOOL_USED_UP = "Tool {tool_name} was not run: it may run {limit} times for this task, and did. Go on without it."

BUDGET_EXCEEDED = (
    "What may be spent on this task is used up. Do not call any more tools. Answer now with what you have found so "
    "far, and say what is still open."
)

CALL_CUT_OFF = "The run ended before this call had a result. Whether it took effect is not known."

TURN_CUT_OFF = """The turn for the message above ended before an answer: it {status}. Tool calls that were made in it:
{calls}"""

BUDGET_CUT_OFF = (
    "Tool {tool_name} was given up: what may be spent on this task is used up ({limit}={most:g}). Whether what it had "
    "begun takes effect is not known. Go on without it."
)

BUDGET_USED_UP = (
    "Tool {tool_name} was not run: what may be spent on this task is used up ({limit}={most:g}). Go on without it."
)

HANDOFF_NOT_CALLED = (
    "You said that you hand over to {to_agent}, but you did not call the tool {tool}, so nothing has happened. Call "
    "it, or finish the task yourself."
)

HANDOFF_CARRIED = "{user_msg}\n\n[Agent {from_agent} has handed this task over to you, for this reason: {reason}]"

HANDOFF_CARRIED_SUMMARY = "\n\n[What was done so far:]\n{summary}"

HANDOFF_SUMMARY = (
    "You hand this task over to another agent, which has not seen the conversation. Write down for it what was found "
    "and done so far and what is still open: facts, names, numbers and decisions, no opinions."
)

AGENT_AS_TOOL = (
    "{description}\nAn agent of its own that does not see this conversation: put all it has to know into the input."
)

GOES_ON = (
    "The run of this context was interrupted and goes on where it was: {names} of this call to run() is not used. "
    "Await the run first, or use another context."
)

FINAL_ANSWER_TOOL = "Give the final answer. Call this tool once, when you have the whole answer."

OUTPUT_FORM = (
    "Your final answer is JSON that fits the following JSON schema, without other text around it. Do not repeat the "
    "schema.\n\n{schema}"
)

OUTPUT_UNFIT = "The answer does not fit the declared output:\n{problems}\n{remedy}"

OUTPUT_NOT_READ = "The result of {tool} ended the run, and does not fit the declared output."

OUTPUT_NOT_REACHED = "The steps or the budget ran out before there was an answer that fits."
