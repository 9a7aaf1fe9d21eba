import asyncio
import warnings
from llama_index.core.agent.workflow import AgentOutput, AgentStreamStructuredOutput, AgentWorkflow, FunctionAgent
from llama_index.core.llms import ChatMessage
from pydantic import BaseModel
from scripts import script
from show import title


class City(BaseModel):
    """A city."""
    name: str
    people: int
class Other(BaseModel):
    river: str

def look_up(city: str) -> str:
    """Look up a city."""
    return f"{city}: 600000 people"

CALL = [("look_up", {"city": "Bremen"})]
CITY = [("City", {"name": "Bremen", "people": 600000})]

async def show(handler):
    kinds, structured = [], []
    async for event in handler.stream_events():
        kinds.append(type(event).__name__)
        if isinstance(event, AgentStreamStructuredOutput):
            structured.append(event)
    print(*(kind for kind in kinds if kind != "AgentStream"))
    output = await handler
    print(str(output), output.structured_response, output.get_pydantic_model(City))
    for event in structured:
        print(event.output, event.get_pydantic_model(City), str(event))
    return output

title("an output class")
async def by_class():
    agent = FunctionAgent(tools=[look_up], llm=script(CALL, "Bremen has 600000 people.", CITY), output_cls=City)
    output = await show(agent.run("How large is Bremen?"))
    print([c.tool_name for c in output.tool_calls])
asyncio.run(by_class())

title("a function, synchronous and asynchronous")
def count(messages):
    return {"name": messages[-1].content.split()[0], "people": len(messages)}
async def count_later(messages):
    return {"name": "later", "people": len([m for m in messages if m.role == "tool"])}
async def by_function():
    for function in (count, count_later):
        await show(FunctionAgent(tools=[look_up], llm=script(CALL, "Bremen it is."), structured_output_fn=function).run("How large?"))
asyncio.run(by_function())

title("the class wins over the function")
agent = FunctionAgent(llm=script(), output_cls=City, structured_output_fn=count)
print(agent.output_cls is City, agent.structured_output_fn)

title("a function that fails")
def bad(messages):
    raise ValueError("no city")
async def failing():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        output = await FunctionAgent(llm=script("Hello."), structured_output_fn=bad).run("Hello?")
    print(output, output.structured_response, [str(w.message).startswith("There was a problem with the generation of the structured output") for w in caught if issubclass(w.category, UserWarning)])
asyncio.run(failing())

title("another model than the answer's")
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    output = AgentOutput(response=ChatMessage("x", role="assistant"), structured_response={"name": "Bremen", "people": 1}, current_agent_name="A")
    print(output.get_pydantic_model(City), output.get_pydantic_model(Other))
    print(AgentStreamStructuredOutput(output={"river": "Weser"}).get_pydantic_model(Other))
print({w.category.__name__ for w in caught})
print(AgentOutput(response=ChatMessage("x", role="assistant"), current_agent_name="A").get_pydantic_model(City))

title("a team's class wins over its agents'")
async def team():
    agent = FunctionAgent(name="A", description="Is A.", tools=[look_up], llm=script("Hello.", CITY), output_cls=Other)
    await show(AgentWorkflow(agents=[agent], output_cls=City).run("Hello?"))
    agent = FunctionAgent(name="A", description="Is A.", tools=[look_up], llm=script("Hello.", CITY), output_cls=City)
    await show(AgentWorkflow(agents=[agent]).run("Hello?"))
    agent = FunctionAgent(name="A", description="Is A.", tools=[look_up], llm=script("Hello there."), output_cls=City)
    await show(AgentWorkflow(agents=[agent], structured_output_fn=count).run("Hello?"))
asyncio.run(team())
