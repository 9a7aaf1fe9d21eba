"""What is particular to bubblewrap: what the code finds inside, packages, and what is said when it is missing."""

import platform
import shutil
import struct
import sys
from collections.abc import AsyncIterator

import pytest

from batonflow.tools.code import BubblewrapExecutor, Done, Failed, Limits, SandboxUnavailableError, Session
from batonflow.tools.code.seccomp import MACHINES, seccomp_filter
from tests.tools.code.sessions import KEY, opened


@pytest.fixture
async def session() -> AsyncIterator[Session]:
    async with opened(BubblewrapExecutor(key=KEY, packages=["pydantic"]), Limits(memory_mb=512)) as one:
        yield one


class TestMissing:
    def test_the_program_is_named_and_how_to_install_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PATH", "/nowhere")
        with pytest.raises(SandboxUnavailableError, match="apt-get install bubblewrap"):
            BubblewrapExecutor()

    def test_other_systems_are_sent_to_monty(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sys, "platform", "darwin")
        with pytest.raises(SandboxUnavailableError, match=r"Linux only: use MontyExecutor\(\)"):
            BubblewrapExecutor()


@pytest.mark.external("bubblewrap")
class TestInside:
    async def test_there_is_little_to_be_seen(self, session: Session) -> None:
        turn = await session.start("import os\n[sorted(os.listdir('/')), dict(os.environ), os.getuid(), os.getcwd()]")
        assert isinstance(turn, Done)
        folders, environment, user, here = turn.value
        assert set(folders) <= {"dev", "etc", "lib", "lib32", "lib64", "packages", "python", "tmp", "usr", "worker.py"}
        assert set(environment) - {"LC_CTYPE", "LD_LIBRARY_PATH", "PYTHONHOME", "PWD"} == {
            "HOME", "LANG", "OPENBLAS_NUM_THREADS", "PYTHONHASHSEED", "TZ",
        }  # fmt: skip
        assert (user, here) == (65534, "/tmp")

    @pytest.mark.parametrize(
        "path", ["/x", "/usr/x", "/dev/x", "/dev/shm/x", "/packages/x", "/python/x", "/worker.py", "/etc/x"]
    )
    async def test_only_tmp_can_be_written(self, session: Session, path: str) -> None:
        turn = await session.start(f"open({path!r}, 'w')")
        assert isinstance(turn, Failed)
        assert any(said in turn.text for said in ("Read-only", "No such file", "Permission denied"))
        assert await session.start("open('/tmp/x', 'w').write('abc')") == Done(output="", value=3)

    async def test_tmp_is_gone_with_the_session(self) -> None:
        executor = BubblewrapExecutor(key=KEY)
        async with opened(executor) as one, opened(executor) as other:
            await one.start("open('/tmp/x', 'w').write('abc')")
            assert await other.start("import os\nos.listdir('/tmp')") == Done(output="", value=[])

    async def test_the_kernel_confirms_it(self, session: Session) -> None:
        code = """
import ctypes
prctl = ctypes.CDLL(None).prctl
[prctl(39, 0, 0, 0, 0), prctl(21, 0, 0, 0, 0)] + [prctl(23, capability) for capability in range(40)]
"""
        # No new privileges, a filter, and none of the capabilities.
        assert await session.start(code) == Done(output="", value=[1, 2] + [0] * 40)

    async def test_threads_and_event_loops_work(self, session: Session) -> None:
        code = "import asyncio\nawait asyncio.to_thread(sum, [1, 2])"
        assert await session.start(code) == Done(output="", value=3)


@pytest.mark.external("bubblewrap")
class TestPackages:
    async def test_a_package_is_there_with_what_it_requires(self, session: Session) -> None:
        code = "import pydantic\nclass M(pydantic.BaseModel):\n    x: int\nM(x='3')"
        assert await session.start(code) == Done(output="", value={"x": 3})

    async def test_no_other_is(self, session: Session) -> None:
        turn = await session.start("import pytest")
        assert isinstance(turn, Failed)
        assert "ModuleNotFoundError" in turn.text

    def test_a_missing_one_is_named(self) -> None:
        with pytest.raises(ValueError, match=r"\['no-such-thing'\]: not installed here: pip install no-such-thing"):
            BubblewrapExecutor(packages=["no-such-thing"])

    def test_the_hints_tell_of_them(self) -> None:
        assert "the standard library and pydantic." in BubblewrapExecutor(packages=["pydantic"]).hints


class TestFilter:
    """The filter, read by a small interpreter of the kernel's language."""

    ALLOW, KILL, EPERM, ENOSYS = 0x7FFF0000, 0x80000000, 0x00050001, 0x00050026

    def verdict(self, machine: str, number: int, *args: int, architecture: int | None = None) -> int:
        program = list(struct.iter_unpack("<HBBI", seccomp_filter(machine)))
        arch = MACHINES[machine][0] if architecture is None else architecture
        data = struct.pack("<IIQ6Q", number, arch, 0, *args, *[0] * (6 - len(args)))
        at, loaded = 0, 0
        while True:
            code, yes, no, value = program[at]
            at += 1
            if code == 0x06:
                return value
            if code == 0x20:
                (loaded,) = struct.unpack_from("<I", data, value)
                continue
            holds = {0x15: loaded == value, 0x35: loaded >= value, 0x45: bool(loaded & value)}[code]
            at += yes if holds else no

    @pytest.mark.parametrize("machine", MACHINES)
    def test_threads_are_made_and_processes_not(self, machine: str) -> None:
        clone, clone3, _, _ = MACHINES[machine][2]
        assert self.verdict(machine, clone, 0x3D0F00) == self.ALLOW
        assert self.verdict(machine, clone, 0x01200011) == self.EPERM
        assert self.verdict(machine, clone3) == self.ENOSYS

    @pytest.mark.parametrize("machine", MACHINES)
    def test_sockets_are_refused_and_pairs_of_them_allowed(self, machine: str) -> None:
        _, refused, (_, _, socketpair, ioctl) = MACHINES[machine]
        assert self.verdict(machine, refused["socket"], 2, 1) == self.EPERM
        assert self.verdict(machine, socketpair, 1, 1) == self.ALLOW
        assert self.verdict(machine, socketpair, 2, 1) == self.EPERM
        assert self.verdict(machine, ioctl, 0, 0x5412) == self.EPERM
        assert self.verdict(machine, ioctl, 0, 0x5401) == self.ALLOW

    @pytest.mark.parametrize(("machine", "read"), [("x86_64", 0), ("aarch64", 63)])
    def test_ordinary_calls_pass(self, machine: str, read: int) -> None:
        assert self.verdict(machine, read) == self.ALLOW

    @pytest.mark.parametrize("machine", MACHINES)
    def test_every_name_of_the_table_is_refused(self, machine: str) -> None:
        for name, number in MACHINES[machine][1].items():
            assert self.verdict(machine, number) == self.EPERM, name

    def test_other_ways_into_the_kernel_end_the_process(self) -> None:
        assert self.verdict("x86_64", 0, architecture=0x40000003) == self.KILL
        assert self.verdict("x86_64", 0x40000000 + 57) == self.KILL

    def test_bubblewrap_is_where_the_filter_is(self) -> None:
        if shutil.which("bwrap") and sys.platform == "linux":
            assert platform.machine() in MACHINES
