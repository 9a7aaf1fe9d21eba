"""Resources: built once where they should be, told apart by identity, never a false circle."""

import asyncio
import functools
import gc
import json
import time
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import pytest
from pydantic import BaseModel, ValidationError

from batonflow.workflow_core.resource import (
    Resource,
    ResourceConfig,
    ResourceDefinition,
    ResourceDescriptor,
    ResourceManager,
)
from tests.contract import contract

if TYPE_CHECKING:
    from nowhere import OnlyForTypeCheckers


class Limits(BaseModel):
    tokens: int
    name: str = "default"


class Other(BaseModel):
    tokens: float


def wants(parameter: str, descriptor: ResourceDescriptor, annotation: Any = object) -> ResourceDefinition:
    return ResourceDefinition(parameter, descriptor, annotation)


def counting(value: object = None, *, pause: float | None = None) -> tuple[Any, list[int]]:
    """Return a factory, async when it pauses, and the list of its calls."""
    calls: list[int] = []

    def sync() -> object:
        calls.append(1)
        return value if value is not None else object()

    async def slow() -> object:
        calls.append(1)
        await asyncio.sleep(pause or 0)
        return value if value is not None else object()

    return (sync if pause is None else slow), calls


@pytest.fixture
def manager() -> ResourceManager:
    return ResourceManager()


@pytest.fixture
def config_file(tmp_path: Path) -> Path:
    path = tmp_path / "app.json"
    path.write_text(json.dumps({"tokens": 5, "deep": {"er": {"tokens": 7, "name": "deep"}}, "number": 3}))
    return path


@contract("9.1")
class TestFactories:
    async def test_a_sync_and_an_async_factory_give_their_values(self, manager: ResourceManager) -> None:
        async def late() -> str:
            await asyncio.sleep(0)
            return "late"

        values = await manager.resolve([wants("a", Resource(lambda: "now")), wants("b", Resource(late))])
        assert values == {"a": "now", "b": "late"}

    async def test_factories_ask_for_resources_and_configs_of_their_own(
        self, manager: ResourceManager, config_file: Path
    ) -> None:
        def base() -> list[str]:
            return ["base"]

        async def middle(
            under: Annotated[list[str], Resource(base)],
            limits: Annotated[Limits, ResourceConfig(str(config_file), "deep.er")],
        ) -> list[str]:
            return [*under, limits.name]

        def top(middle: Annotated[list[str], Resource(middle)], flag: bool = True, **rest: Any) -> list[Any]:
            return [*middle, "top", flag, rest]

        values = await manager.resolve([wants("t", Resource(top))])
        assert values == {"t": ["base", "deep", "top", True, {}]}

    async def test_partials_and_callable_objects_are_factories(self, manager: ResourceManager) -> None:
        async def power(base: int, exponent: int) -> int:
            return base**exponent

        class Maker:
            async def __call__(self) -> str:
                return "made"

        class Plain:
            def __init__(self, other: Annotated[int, Resource(lambda: 3)]) -> None:
                self.other = other

        values = await manager.resolve(
            [
                wants("p", Resource(functools.partial(power, 2, 3))),
                wants("m", Resource(Maker())),
                wants("c", Resource(Plain)),
            ]
        )
        assert (values["p"], values["m"], values["c"].other) == (8, "made", 3)

    async def test_a_coroutine_from_a_plain_function_is_refused_with_the_remedy(self, manager: ResourceManager) -> None:
        async def late() -> str:
            return "late"

        with pytest.raises(TypeError, match="async def"):
            await manager.resolve([wants("x", Resource(lambda: late()))])

    async def test_types_known_to_type_checkers_only_do_not_matter(self, manager: ResourceManager) -> None:
        def make(limit: "OnlyForTypeCheckers | None" = None) -> "OnlyForTypeCheckers":
            return ("made", limit)  # type: ignore[return-value]

        def outer(inner: Annotated["OnlyForTypeCheckers", Resource(make)]) -> Any:
            return inner

        assert await manager.resolve([wants("x", Resource(outer))]) == {"x": ("made", None)}

    async def test_an_annotation_that_cannot_be_read_names_the_missing_name(self, manager: ResourceManager) -> None:
        def make(thing: "Annotated[int, Resource(not_defined_anywhere)]") -> int:  # noqa: F821
            return thing

        with pytest.raises(NameError, match="not_defined_anywhere") as caught:
            await manager.resolve([wants("the_parameter", Resource(make))])
        assert any("the_parameter" in note for note in caught.value.__notes__)

    async def test_the_error_of_a_factory_arrives_unchanged_and_names_the_step_parameter(
        self, manager: ResourceManager
    ) -> None:
        boom = RuntimeError("boom")

        def failing() -> None:
            raise boom

        with pytest.raises(RuntimeError) as caught:
            await manager.resolve([wants("database", Resource(failing))])
        assert caught.value is boom
        assert any("'database'" in note and "failing" in note for note in boom.__notes__)


GLOBAL_VALUE = "global"


def from_module() -> str:
    return GLOBAL_VALUE


def asks_by_module_name(value: "Annotated[str, Resource(from_module)]") -> str:
    return value


def asks_by_local_name(value: "Annotated[str, Resource(only_local)]") -> str:  # noqa: F821
    return value


@contract("3.3", "9.1")
class TestNames:
    async def test_enclosing_locals_do_not_shadow_the_globals_of_a_factory(self, manager: ResourceManager) -> None:
        resource = Resource(asks_by_module_name)
        resource.set_localns({"from_module": lambda: "local"})
        assert await manager.get(resource) == "global"

    async def test_enclosing_locals_supply_what_the_globals_do_not_know(self, manager: ResourceManager) -> None:
        resource = Resource(asks_by_local_name)
        resource.set_localns({"only_local": lambda: "local"})
        assert await manager.get(resource) == "local"

    async def test_locals_reach_the_factories_behind_the_first(self, manager: ResourceManager) -> None:
        outer = Resource(lambda: None)

        def make(inner: Annotated[str, Resource(asks_by_local_name)]) -> str:
            return inner

        outer = Resource(make)
        outer.set_localns({"only_local": lambda: "local"})
        assert await manager.get(outer) == "local"

    async def test_a_factory_sees_its_own_closure(self, manager: ResourceManager) -> None:
        def hidden() -> str:
            return "closure"

        def make(value: "Annotated[str, Resource(hidden)]") -> str:
            return value + hidden()

        assert await manager.get(Resource(make)) == "closureclosure"

    def test_enclosing_locals_are_let_go_once_read(self) -> None:
        class Big:
            pass

        big = Big()
        watch = weakref.ref(big)
        resource = Resource(asks_by_module_name)
        resource.set_localns({"big": big})
        del big
        gc.collect()
        assert watch() is None


@contract("9.2", "9.5")
class TestCaching:
    async def test_one_value_per_manager(self, manager: ResourceManager) -> None:
        factory, calls = counting()
        first = await manager.resolve([wants("a", Resource(factory))])
        second = await manager.resolve([wants("b", Resource(factory))])
        assert first["a"] is second["b"]
        assert await ResourceManager().get(Resource(factory)) is not first["a"]
        assert len(calls) == 2

    async def test_an_uncached_resource_is_one_instance_within_one_execution(self, manager: ResourceManager) -> None:
        factory, calls = counting()
        uncached = Resource(factory, cache=False)

        def user(it: Annotated[object, uncached]) -> object:
            return it

        wanted = [wants("a", uncached), wants("b", Resource(factory, cache=False)), wants("c", Resource(user, False))]
        first = await manager.resolve(wanted)
        assert first["a"] is first["b"] is first["c"]
        second = await manager.resolve(wanted)
        assert second["a"] is not first["a"]
        assert len(calls) == 2
        assert manager.get_all() == {}

    async def test_factories_of_one_name_keep_apart(self, manager: ResourceManager) -> None:
        one, _ = counting(1)
        two, _ = counting(2)
        assert one.__qualname__ == two.__qualname__
        assert await manager.resolve([wants("a", Resource(one)), wants("b", Resource(two))]) == {"a": 1, "b": 2}
        assert sorted(manager.get_all().values()) == [1, 2]

    async def test_lambdas_built_one_after_another_keep_apart(self, manager: ResourceManager) -> None:
        values = [await manager.get(Resource(lambda number=number: number)) for number in range(20)]
        assert values == list(range(20))

    async def test_bound_methods_are_one_factory_per_object(self, manager: ResourceManager) -> None:
        class Maker:
            def make(self) -> object:
                return object()

        one, two = Maker(), Maker()
        first = await manager.get(Resource(one.make))
        assert await manager.get(Resource(one.make)) is first
        assert await manager.get(Resource(two.make)) is not first

    async def test_a_value_of_none_is_kept_too(self, manager: ResourceManager) -> None:
        calls: list[int] = []
        resource = Resource(lambda: calls.append(1))
        assert [await manager.get(resource), await manager.get(resource)] == [None, None]
        assert len(calls) == 1

    async def test_a_failing_factory_is_not_kept(self, manager: ResourceManager) -> None:
        attempts: list[int] = []

        def flaky() -> str:
            attempts.append(1)
            if len(attempts) == 1:
                raise RuntimeError("not yet")
            return "ready"

        with pytest.raises(RuntimeError, match="not yet"):
            await manager.get(Resource(flaky))
        assert await manager.get(Resource(flaky)) == "ready"


@contract("9.3")
class TestCircles:
    async def test_a_circle_is_named_from_end_to_end(self, manager: ResourceManager) -> None:
        first, second = _circle()
        with pytest.raises(
            ValueError, match=r"Circular resource dependency detected: circle_a -> circle_b -> circle_a"
        ):
            await manager.resolve([wants("x", first)])
        with pytest.raises(ValueError, match="Circular resource dependency detected"):
            manager.resolve_sync_if_ready([wants("x", second)])

    async def test_two_resolutions_of_a_circle_do_not_wait_for_each_other(self, manager: ResourceManager) -> None:
        first, second = _circle()
        results = await asyncio.gather(manager.get(first), manager.get(second), return_exceptions=True)
        assert [type(result) for result in results] == [ValueError, ValueError]

    async def test_a_value_set_by_hand_opens_the_circle(self, manager: ResourceManager) -> None:
        first, second = _circle()
        await manager.set(second.name, "by hand")
        assert await manager.get(first) == "by hand"

    async def test_two_ways_to_one_resource_are_no_circle(self, manager: ResourceManager) -> None:
        shared = Resource(lambda: 1)

        def left(it: Annotated[int, shared]) -> int:
            return it

        def right(it: Annotated[int, shared], left: Annotated[int, Resource(left)]) -> int:
            return it + left

        assert await manager.get(Resource(right)) == 2


async def circle_a(it: "Annotated[Any, CIRCLE_B]") -> Any:
    return it


async def circle_b(it: "Annotated[Any, CIRCLE_A]") -> Any:
    return it


CIRCLE_A, CIRCLE_B = Resource(circle_a), Resource(circle_b)


def _circle() -> tuple[Resource[Any], Resource[Any]]:
    return Resource(circle_a), Resource(circle_b)


@contract("9.5")
class TestTogether:
    async def test_many_at_once_build_it_once(self, manager: ResourceManager) -> None:
        factory, calls = counting(pause=0.01)

        async def user(it: Annotated[object, Resource(factory)]) -> object:
            return it

        wanted = [wants("a", Resource(user)), wants("b", Resource(factory))]
        results = await asyncio.gather(*(manager.resolve(wanted) for _ in range(20)))
        assert len({id(value) for result in results for value in result.values()}) == 1
        assert len(calls) == 1

    async def test_everybody_waiting_sees_the_error_and_the_next_one_starts_anew(
        self, manager: ResourceManager
    ) -> None:
        attempts: list[int] = []

        async def flaky() -> str:
            attempts.append(1)
            await asyncio.sleep(0.01)
            if len(attempts) == 1:
                raise RuntimeError("down")
            return "up"

        results = await asyncio.gather(*(manager.get(Resource(flaky)) for _ in range(5)), return_exceptions=True)
        assert [str(result) for result in results] == ["down"] * 5
        assert await manager.get(Resource(flaky)) == "up"
        assert len(attempts) == 2

    async def test_when_the_builder_is_cancelled_another_takes_over(self, manager: ResourceManager) -> None:
        factory, calls = counting("value", pause=0.02)
        first = asyncio.create_task(manager.get(Resource(factory)))
        await asyncio.sleep(0)
        others = [asyncio.create_task(manager.get(Resource(factory))) for _ in range(3)]
        await asyncio.sleep(0)
        first.cancel()
        assert await asyncio.gather(*others) == ["value"] * 3
        assert len(calls) == 2
        with pytest.raises(asyncio.CancelledError):
            await first

    async def test_cancelling_one_who_waits_does_not_disturb_the_rest(self, manager: ResourceManager) -> None:
        factory, calls = counting("value", pause=0.02)
        tasks = [asyncio.create_task(manager.get(Resource(factory))) for _ in range(3)]
        await asyncio.sleep(0)
        tasks[1].cancel()
        assert await asyncio.gather(tasks[0], tasks[2]) == ["value", "value"]
        assert len(calls) == 1

    async def test_a_second_loop_does_not_wait_for_the_first(self, manager: ResourceManager) -> None:
        hold = asyncio.Event()

        async def factory() -> str:
            if asyncio.get_running_loop() is home:
                await hold.wait()
            return "value"

        home = asyncio.get_running_loop()
        slow = asyncio.create_task(manager.get(Resource(factory)))
        await asyncio.sleep(0)
        elsewhere = await asyncio.to_thread(lambda: asyncio.run(manager.get(Resource(factory))))
        hold.set()
        assert (elsewhere, await slow) == ("value", "value")


@contract("9.1", "9.2")
class TestWithoutAwaiting:
    async def test_sync_factories_are_resolved_at_once(self, manager: ResourceManager) -> None:
        factory, calls = counting()

        def user(it: Annotated[object, Resource(factory)]) -> object:
            return it

        wanted = [wants("a", Resource(user)), wants("b", Resource(factory, cache=False))]
        values = manager.resolve_sync_if_ready(wanted)
        assert values is not None
        assert values["a"] is values["b"] is await manager.get(Resource(factory))
        assert len(calls) == 1

    async def test_nothing_is_started_when_something_must_be_awaited(self, manager: ResourceManager) -> None:
        sync, sync_calls = counting()
        slow, slow_calls = counting(pause=0)

        def user(it: Annotated[object, Resource(slow)]) -> object:
            return it

        wanted = [wants("a", Resource(sync)), wants("b", Resource(user))]
        assert manager.resolve_sync_if_ready(wanted) is None
        assert sync_calls == slow_calls == []
        values = await manager.resolve(wanted)
        assert manager.resolve_sync_if_ready(wanted) == values

    async def test_the_error_names_the_parameter(self, manager: ResourceManager) -> None:
        with pytest.raises(ZeroDivisionError) as caught:
            manager.resolve_sync_if_ready([wants("ratio", Resource(lambda: 1 / 0))])
        assert any("'ratio'" in note for note in caught.value.__notes__)


@contract("9.6")
class TestConfig:
    async def test_the_selected_part_is_validated_into_the_annotated_class(
        self, manager: ResourceManager, config_file: Path
    ) -> None:
        values = await manager.resolve(
            [
                wants("whole", ResourceConfig(str(config_file)), Limits),
                wants(
                    "part",
                    ResourceConfig(str(config_file), path_selector="deep.er", label="l", description="d"),
                    Limits,
                ),
                wants("other", ResourceConfig(str(config_file)), Other),
            ]
        )
        assert values == {"whole": Limits(tokens=5), "part": Limits(tokens=7, name="deep"), "other": Other(tokens=5.0)}

    def test_only_json_files(self) -> None:
        with pytest.raises(ValueError, match="Only JSON files"):
            ResourceConfig("settings.yaml")

    async def test_the_file_is_looked_up_at_first_use(
        self, manager: ResourceManager, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        config = ResourceConfig("later.json")
        monkeypatch.chdir(tmp_path)
        with pytest.raises(FileNotFoundError, match=r"No such file: later\.json"):
            await manager.get(config, Limits)
        (tmp_path / "later.json").write_text('{"tokens": 1}')
        assert await manager.get(config, Limits) == Limits(tokens=1)
        assert config.config_file == str(tmp_path / "later.json")

    @pytest.mark.parametrize(("selector", "words"), [("number", "path number"), ("deep.absent", r"path deep\.absent")])
    async def test_the_selected_part_must_be_an_object(
        self, manager: ResourceManager, config_file: Path, selector: str, words: str
    ) -> None:
        with pytest.raises(ValueError, match=f"Expected dictionary for configuration from .*app.json at {words}"):
            await manager.get(ResourceConfig(str(config_file), selector), Limits)

    async def test_a_whole_file_that_is_a_list_is_refused(self, manager: ResourceManager, tmp_path: Path) -> None:
        (tmp_path / "list.json").write_text("[1]")
        with pytest.raises(ValueError, match="Expected dictionary for configuration"):
            await manager.get(ResourceConfig(str(tmp_path / "list.json")), Limits)

    async def test_data_that_do_not_fit_and_classes_that_are_no_models(
        self, manager: ResourceManager, config_file: Path
    ) -> None:
        with pytest.raises(ValidationError):
            await manager.get(ResourceConfig(str(config_file), "deep"), Limits)
        with pytest.raises(ValueError, match="pydantic model"):
            await manager.get(ResourceConfig(str(config_file)), dict)

    async def test_a_broken_file_is_named(self, manager: ResourceManager, tmp_path: Path) -> None:
        path = tmp_path / "broken.json"
        path.write_text("{")
        with pytest.raises(ValueError) as caught:  # noqa: PT011 - the note is what is looked at
            await manager.get(ResourceConfig(str(path)), Limits)
        assert any(str(path) in note for note in caught.value.__notes__)

    async def test_the_value_stays_with_the_manager_and_a_changed_file_is_read_by_the_next(
        self, manager: ResourceManager, config_file: Path
    ) -> None:
        config = ResourceConfig(str(config_file))
        before = await manager.get(config, Limits)
        config_file.write_text('{"tokens": 12345}')  # noqa: ASYNC240
        assert await manager.get(config, Limits) is before
        assert await ResourceManager().get(config, Limits) == Limits(tokens=12345)

    @contract("9.7")
    def test_problems_of_all_files_are_listed_by_parameter(
        self, manager: ResourceManager, config_file: Path, tmp_path: Path
    ) -> None:
        def make(limits: Annotated[Limits, ResourceConfig(str(tmp_path / "absent.json"))]) -> Limits:
            raise AssertionError("validating must not run factories")

        problems = manager.validate_configs(
            [
                wants("good", ResourceConfig(str(config_file)), Limits),
                wants("bad", ResourceConfig(str(config_file), "deep"), Limits),
                wants("model", Resource(make)),
                wants("circle", Resource(circle_a)),
            ]
        )
        assert len(problems) == 2
        assert problems[0].startswith("parameter 'bad': ")
        assert problems[1].startswith("parameter 'model' (")
        assert "No such file" in problems[1]


@contract("9.8")
class TestByHand:
    async def test_a_value_set_by_name_stands_in_for_the_factory(self, manager: ResourceManager) -> None:
        factory, calls = counting()
        await manager.set(Resource(factory).name, "stand-in")
        assert await manager.resolve([wants("a", Resource(factory))]) == {"a": "stand-in"}
        assert manager.resolve_sync_if_ready([wants("a", Resource(factory))]) == {"a": "stand-in"}
        assert calls == []

    async def test_it_replaces_a_value_built_before_but_not_an_uncached_one(self, manager: ResourceManager) -> None:
        factory, _ = counting("built")
        assert await manager.get(Resource(factory)) == "built"
        await manager.set(Resource(factory).name, "set")
        assert await manager.get(Resource(factory)) == "set"
        assert await manager.get(Resource(factory, cache=False)) == "built"

    async def test_get_all_tells_names_and_values(self, manager: ResourceManager) -> None:
        await manager.set("by hand", 1)
        await manager.get(Resource(from_module))
        assert manager.get_all() == {"by hand": 1, "from_module": "global"}

    async def test_a_descriptor_of_ones_own(self, manager: ResourceManager) -> None:
        class Clock:
            name = "clock"
            cache = False

            def identity(self, type_annotation: Any) -> Any:
                return id(self)

            def is_async(self) -> bool:
                return False

            def get_dependencies(self) -> list[ResourceDefinition]:
                return []

            def build(self, dependencies: Any, type_annotation: Any) -> float:
                return time.monotonic()

        assert isinstance(Clock(), ResourceDescriptor)
        assert isinstance(await manager.get(Clock()), float)


def test_a_definition_reads_as_the_tuple_it_is() -> None:
    resource = Resource(from_module)
    name, descriptor, annotation = ResourceDefinition("a", resource, str)
    assert (name, descriptor, annotation) == ("a", resource, str)
    assert ResourceDefinition("a", resource).resource is resource
    assert repr(resource) == "Resource(from_module, cache=True)"
    assert repr(ResourceConfig("a.json", "b")) == "ResourceConfig(a.json.b)"
