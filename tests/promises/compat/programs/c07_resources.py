import asyncio
import json
from typing import Annotated
from pydantic import BaseModel
from llama_index.core.workflow import Context, Event, StartEvent, StopEvent, Workflow, step
from workflows.resource import Resource, ResourceConfig, ResourceManager
from workflows.retry_policy import retry_policy, stop_after_attempt, wait_none
from show import errors, fails, title

made: list = []

class Settings(BaseModel):
    name: str
    size: int = 1

with open("settings.json", "w") as file:
    json.dump({"name": "top", "size": 2, "deep": {"part": {"name": "deep", "size": 3}}, "number": 5}, file)

class Client:
    def __init__(self, name):
        self.name = name

def make_client():
    made.append("client")
    return Client("plain")

async def make_index(client: Annotated[Client, Resource(make_client)],
                     settings: Annotated[Settings, ResourceConfig("settings.json", path_selector="deep.part")]):
    made.append("index")
    await asyncio.sleep(0)
    return (client, settings.name)

def make_fresh():
    made.append("fresh")
    return object()

def uses_fresh(fresh: Annotated[object, Resource(make_fresh, cache=False)]):
    return fresh

class A(Event):
    n: int = 0

title("injected beside the event and the context")
class Uses(Workflow):
    @step
    async def start(self, ctx: Context, ev: StartEvent, client: Annotated[Client, Resource(make_client)],
                    settings: Annotated[Settings, ResourceConfig("settings.json", label="Settings")]) -> A:
        await ctx.store.set("client", id(client))
        print(client.name, settings.name, settings.size)
        return A()
    @step
    async def end(self, ctx: Context, index: Annotated[tuple, Resource(make_index)], ev: A,
                  client: Annotated[Client, Resource(make_client)]) -> StopEvent:
        return StopEvent(result=(index[0] is client, index[1], await ctx.store.get("client") == id(client)))
async def uses():
    workflow = Uses()
    print(await workflow.run(), made)
    print(await workflow.run(), made)
    print(await Uses().run(), made)
asyncio.run(uses())

title("uncached: one for one execution")
class Fresh(Workflow):
    @step
    async def start(self, ev: StartEvent | A, one: Annotated[object, Resource(make_fresh, cache=False)],
                    two: Annotated[object, Resource(make_fresh, cache=False)]) -> A | StopEvent:
        print(one is two)
        if isinstance(ev, StartEvent):
            self.kept = one
            return A()
        return StopEvent(result=self.kept is one)
async def fresh():
    made.clear()
    print(await Fresh().run(), made)
asyncio.run(fresh())

title("failing factories are the step's failure, retried by its policy")
attempts: list = []
def flaky():
    attempts.append(1)
    if len(attempts) < 3:
        raise ConnectionError(f"down {len(attempts)}")
    return "up"
class Flaky(Workflow):
    @step(retry_policy=retry_policy(wait=wait_none(), stop=stop_after_attempt(5)))
    async def start(self, ev: StartEvent, value: Annotated[str, Resource(flaky)]) -> StopEvent:
        return StopEvent(result=value)
class Unlucky(Workflow):
    @step
    async def start(self, ev: StartEvent, value: Annotated[str, Resource(flaky)]) -> StopEvent:
        return StopEvent(result=value)
async def run(workflow, **kwargs):
    return await workflow.run(**kwargs)
async def failing():
    print(await run(Flaky()), len(attempts))
    attempts.clear()
    await fails(run(Unlucky()), "down 1")
asyncio.run(failing())

title("circles")
def circle_a(b: Annotated[int, Resource(lambda: 1)]):
    return b
def circle_b(a: "Annotated[int, Resource(circle_c)]"):
    return a
def circle_c(b: Annotated[int, Resource(circle_b)]):
    return b
class Circle(Workflow):
    @step
    async def start(self, ev: StartEvent, value: Annotated[int, Resource(circle_b)]) -> StopEvent:
        return StopEvent(result=value)
class NoCircle(Workflow):
    @step
    async def start(self, ev: StartEvent, value: Annotated[int, Resource(circle_a)]) -> StopEvent:
        return StopEvent(result=value)
async def circles():
    print(await run(NoCircle()))
    await fails(run(Circle()), "Circular resource dependency detected", "circle_b", "circle_c")
asyncio.run(circles())

title("configuration files")
errors(lambda: ResourceConfig("settings.yaml"))
def wants(config):
    class Wants(Workflow):
        @step
        async def the_step(self, ev: StartEvent, settings: Annotated[Settings, config]) -> StopEvent:
            return StopEvent(result=settings)
    return Wants()
async def configs():
    print(repr(await run(wants(ResourceConfig("settings.json")))), repr(await run(wants(ResourceConfig("settings.json", "deep.part")))))
    await fails(run(wants(ResourceConfig("absent.json"))), "No such file", "step 'the_step', parameter 'settings'")
    await fails(run(wants(ResourceConfig("settings.json", "number"))), "Expected dictionary for configuration from", "at path number")
    await fails(run(wants(ResourceConfig("settings.json", "deep"))), "step 'the_step', parameter 'settings'")
asyncio.run(configs())
errors(lambda: wants(ResourceConfig("absent.json")).validate(), "No such file")
print(wants(ResourceConfig("absent.json")).validate(validate_resource_configs=False))
errors(lambda: Unlucky().validate(validate_resources=True), "down 2")

title("the manager")
async def manager():
    shared = ResourceManager()
    made.clear()
    one, two = Uses(resource_manager=shared), Uses(resource_manager=shared)
    await one.run()
    await two.run()
    print(made, await shared.get(Resource(make_client)) is await shared.get(Resource(make_client)))
    await shared.set("by hand", 3)
    print(shared.get_all()["by hand"], "make_client" in shared.get_all(), len(made))
    own = ResourceManager()
    await own.set("make_client", Client("stand-in"))
    print(await run(Uses(resource_manager=own)))
asyncio.run(manager())
