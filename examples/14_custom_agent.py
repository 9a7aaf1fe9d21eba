"""An agent of your own: three methods say how it thinks, what it does with results, and how it ends."""

import asyncio
from collections.abc import Sequence
from typing import Any

from models import model_or

from batonflow import AgentOutput, BaseWorkflowAgent, ChatMessage, Context, ToolCallResult
from batonflow.llms import MessageRole, ToolSelection
from batonflow.tools import AsyncBaseTool


class Calculator(BaseWorkflowAgent):
    """Sends every question with two numbers to its first tool, and lets the model put the result into words."""

    async def take_step(
        self, ctx: Context[Any], llm_input: list[ChatMessage], tools: Sequence[AsyncBaseTool], memory: Any
    ) -> AgentOutput:
        numbers = [int(word) for word in (llm_input[-1].content or "").split() if word.isdigit()]
        if llm_input[-1].role == MessageRole.USER and len(numbers) == 2:
            call = ToolSelection(
                tool_id="1", tool_name=tools[0].metadata.get_name(), tool_kwargs=dict(zip("ab", numbers, strict=True))
            )
            message = ChatMessage("", role=MessageRole.ASSISTANT)
            return AgentOutput(response=message, tool_calls=[call], current_agent_name=self.name)
        answer = await self.the_llm().achat(llm_input)
        return AgentOutput(response=answer.message, current_agent_name=self.name)

    async def handle_tool_call_results(self, ctx: Context[Any], results: list[ToolCallResult], memory: Any) -> None:
        for result in results:
            await memory.aput(ChatMessage(result.tool_output.content))

    async def finalize(self, ctx: Context[Any], output: AgentOutput, memory: Any) -> AgentOutput:
        await memory.aput(output.response)
        return output


def multiply(a: int, b: int) -> int:
    """Multiply two numbers."""
    return a * b


async def main() -> None:
    llm = model_or(lambda request: f"That makes {request.messages[-1].content}.")
    agent = Calculator(name="calculator", llm=llm, tools=[multiply])
    print(await agent.run("What is 6 times 7 ?"))


asyncio.run(main())
