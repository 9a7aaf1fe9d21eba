"""The words of records, as a preset dictionary for compression: small records consist of little else.

Stored records name the dictionary by its number, so it never changes. A better one gets the next number.
"""

__all__ = ["RECORD_WORDS"]

_RECORDS = (
    # Most frequent last, because near matches take fewer bits.
    '"traceback":"Traceback (most recent call last):\\n  File \\"","exception_type":"builtins.","exception_message":"',
    '"then":"retry","due":"first_attempt_at":"last_failed_at":"recovery_counts":{},"recoveries":{},"verdict":',
    '{"kind":"restored","snapshot":{"version":2,"state":{},"is_running":true,"workers":{"queue":[],"in_progress":[]',
    '{"kind":"answered","step":"","item":,"key":"","event":["{"kind":"input","answers":{"kind":"dropped"',
    '"outcome":["waiting",{"waiter_id":"waiter_","key":"","waiting_for_event":"batonflow.agents.approvals.ApprovalResponse"',
    '"fields":{"approved":,"reason":},"requirements":null,"due":null,"question":["batonflow.agents.approvals.ApprovalRequired"',
    '"batonflow.workflow_core.events.InputRequiredEvent","batonflow.workflow_core.events.HumanResponseEvent",{"response":"',
    '{"prefix":"","session":"","metadata":{},"child":{"name":"","call":null,"by_event":true},"target":"","collects":[[',
    '"batonflow.workflow_core.events.WorkflowFailedEvent",{"step_name":"batonflow.workflow_core.events.WorkflowCancelledEvent"',
    '"batonflow.agents.events.ToolProgress","batonflow.agents.events.AgentStreamStructuredOutput",{"output":{"',
    '"qualified_name":"builtins.tuple"},"__is_value":true,"__is_data":true,"__is_component":true,"marked":["',
    '"handoff","current_reasoning":"batonflow.llms.react_text.ActionReasoningStep",{"thought":"","action":"","action_input":{',
    '"chat_store":{"class_name":"batonflow.agents.memory.sqlite_store.SQLiteChatStore","batonflow.agents.memory.memory.Memory"',
    '{"block_type":"thinking","content":"","num_tokens":null,"additional_information":{}},{"block_type":"image","image":"',
    '"additional_kwargs":{"tool_call_id":"call_"}},{"role":"user","blocks":[{"block_type":"text","text":"',
    '{"role":"system","blocks":[{"block_type":"text","text":"","role":"tool","additional_kwargs":{}',
    '{"kind":"started","id":1,"path":"","served":true,"state":[["memory",[null,{"__is_pydantic":true,"value":{',
    '"early_stopping_method",["force"]],["formatted_input_with_state",[false]],["max_iterations",[20]],',
    '["current_tool_calls",[[]]],["usage",[{}]],["current_agent_name",["Agent"]],["user_msg_str",["',
    '"event":["batonflow.workflow_core.events.StartEvent",{"event":["batonflow.agents.events.AgentWorkflowStartEvent",',
    '{"user_msg":{"$":"batonflow.workflow_core.events.DictState","num_iterations",[0]],["scratchpad",[[]]],["num_tool_calls",[1]]]',
    '{"model":"gpt-","vendor":"openai","options":{"parallel_tool_calls":true,"temperature":0.1,"tool_choice":"auto"},"tools":["',
    '"finish":"stop","finish":"tool_calls","usage":{"input_tokens":,"output_tokens":},"request_id":"req_","first":0.,"took":0.',
    '{"__is_pydantic":true,"value":{"input_tokens":,"output_tokens":,"cached_tokens":0,"cache_write_tokens":0,',
    '"reasoning_tokens":0,"cost":null},"qualified_name":"batonflow.llms.usage.Usage"}',
    '"writes":[[1,"memory",[null,{"__is_pydantic":true,"value":{"chat_store_key":"chat_history","token_limit":3000,',
    '"token_flush_size":null,"chat_store":{"class_name":"batonflow.agents.memory.chat_store.SimpleChatStore","store":{',
    '"chat_history":{"$":[[,0,]},"archived":{}}},"qualified_name":"batonflow.agents.memory.buffer.ChatMemoryBuffer"}]],',
    '[2,"state",[{}]],[3,"max_iterations",[20]],[4,"early_stopping_method",["force"]],[5,"num_iterations",[0]],',
    '[6,"formatted_input_with_state",[false]],[7,"current_tool_calls",[[]]],[8,"usage",[{}]],[9,"current_agent_name",["Agent"]],',
    '[10,"user_msg_str",[{"$":[1,"num_iterations",[1]],[2,"num_tool_calls",[1]]],"sends":[[1,["batonflow.agents.events.ToolCall",',
    '{"tool_name":"","tool_kwargs":{"},"tool_id":"call_","position":0}],null]],"outcome":["returned"]},{"kind":"segment","id":1',
    '"outcome":["intent",["tool 1/0",{"about":{"tool":"","digest":"',
    '","outcome":["once",["tool 1/0",[null,{"__is_pydantic":true,',
    '"value":{"blocks":[{"block_type":"text","text":{"$":}}],"tool_name":"","raw_input":{"args":[],"kwargs":{"},"is_error":false,',
    '"raw_output":{"$":},"qualified_name":"batonflow.tools.base.ToolOutput"}]]]}]}',
    '"kind":"ended","event":["batonflow.workflow_core.events.StopEvent",{"result":{"__is_pydantic":true,"value":{"response":',
    '{"role":"assistant","additional_kwargs":{},"blocks":[{"block_type":"tool_call","tool_call_id":"call_","tool_name":"',
    '{"role":"assistant","additional_kwargs":{},"blocks":[{"block_type":"text","text":{"$":}}]},"current_agent_name":"Agent",',
    '"tool_calls":[{"tool_name":"","tool_kwargs":{"},"tool_id":"call_","tool_output":{"blocks":[{"block_type":"text","text":{"$":',
    '"return_direct":false,"_data":{"position":0}}],"usage":null,"usage_by_agent":{},"retry_messages":[],"structured_response":null}',
    ',"qualified_name":"batonflow.agents.events.AgentOutput"}},["result"]],"seq":26,"origins":[[1,0]]}]}',
    '"streamed":[[1,["batonflow.agents.events.AgentStream",{"delta":"","response":"","current_agent_name":"Agent","tool_calls":[],',
    '"thinking_delta":null},1],2,["batonflow.agents.events.AgentOutput",{"response":{"role":"assistant","additional_kwargs":{},',
    '"batonflow.agents.events.ToolCallResult",{"tool_name":"","tool_id":"call_","outcome":["returned",[["',
    '"writes":[[1,"scratchpad",[null,{"$":{"of":"batonflow.llms.messages.ChatMessage","items":[[,,]]}}]]],"step":"call_tool",',
    '"current_tool_calls",[null,{"$":{"of":"batonflow.agents.events.ToolCallResult","items":["step":"aggregate_tool_results",',
    '"step":"parse_agent_output","item":4,"began":17,"step":"init_run","item":1,"began":17',
    '"t":1795770839.6,"e":0.0,"r":[{"kind":"segment","id":5,"path":"","step":"setup_agent","item":2,"began":1795770839.6,',
    '"origins":[[3,-1]],"outcome":["returned",[["batonflow.agents.events.AgentSetup",{"current_agent_name":"Agent","input":{"$":[[',
    '{"p":12,"t":1795770839.6,"e":0.0,"r":[{"kind":"segment","id":7,"path":"","step":"run_agent_step","item":3,"began":1795770839.6,',
    '"origins":[[5,-1]],"streamed":[[1,["batonflow.agents.events.AgentInput",{"current_agent_name":"Agent","input":{"$":[[',
)  # fmt: skip

RECORD_WORDS = {1: "".join(_RECORDS).encode()}
"""The dictionaries by number; the last one is used for new records."""
