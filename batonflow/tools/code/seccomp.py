"""Filter of system calls for Linux, in the kernel's classic BPF.

It refuses system calls that a sandbox of namespaces leaves open: processes (a limit on their number does not hold for
root), sockets, memory outside the limit, and the parts of the kernel with most escapes from sandboxes.
"""

import errno
import struct
from collections.abc import Sequence

__all__ = ["MACHINES", "seccomp_filter"]

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_CLONE_THREAD = 0x00010000
_AF_UNIX = 1
_TIOCSTI = 0x5412
_X32 = 0x40000000

# Numbers from 424 on are the same everywhere.
_COMMON = {
    "pidfd_send_signal": 424, "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427,
    "open_tree": 428, "move_mount": 429, "fsopen": 430, "fsconfig": 431, "fsmount": 432, "fspick": 433,
    "pidfd_getfd": 438, "mount_setattr": 442, "landlock_create_ruleset": 444, "memfd_secret": 447,
}  # fmt: skip
_X86_64 = {
    "shmget": 29, "shmat": 30, "fork": 57, "vfork": 58, "semget": 64, "msgget": 68, "ptrace": 101, "syslog": 103,
    "personality": 135, "ustat": 136, "sysfs": 139, "vhangup": 153, "pivot_root": 155, "_sysctl": 156,
    "adjtimex": 159, "chroot": 161, "acct": 163, "settimeofday": 164, "mount": 165, "umount2": 166, "swapon": 167,
    "swapoff": 168, "reboot": 169, "sethostname": 170, "setdomainname": 171, "iopl": 172, "ioperm": 173,
    "init_module": 175, "delete_module": 176, "quotactl": 179, "io_setup": 206, "lookup_dcookie": 212,
    "clock_settime": 227, "mbind": 237, "set_mempolicy": 238, "mq_open": 240, "kexec_load": 246, "add_key": 248,
    "request_key": 249, "keyctl": 250, "migrate_pages": 256, "unshare": 272, "move_pages": 279,
    "perf_event_open": 298, "fanotify_init": 300, "name_to_handle_at": 303, "open_by_handle_at": 304,
    "clock_adjtime": 305, "setns": 308, "process_vm_readv": 310, "process_vm_writev": 311, "kcmp": 312,
    "finit_module": 313, "memfd_create": 319, "kexec_file_load": 320, "bpf": 321, "execveat": 322,
    "userfaultfd": 323, "socket": 41,
}  # fmt: skip
_AARCH64 = {
    "io_setup": 0, "lookup_dcookie": 18, "umount2": 39, "mount": 40, "pivot_root": 41, "chroot": 51, "vhangup": 58,
    "quotactl": 60, "acct": 89, "personality": 92, "unshare": 97, "kexec_load": 104, "init_module": 105,
    "delete_module": 106, "clock_settime": 112, "syslog": 116, "ptrace": 117, "reboot": 142, "sethostname": 161,
    "setdomainname": 162, "settimeofday": 170, "adjtimex": 171, "mq_open": 180, "msgget": 186, "semget": 190,
    "shmget": 194, "shmat": 196, "socket": 198, "add_key": 217, "request_key": 218, "keyctl": 219, "swapon": 224,
    "swapoff": 225, "mbind": 235, "set_mempolicy": 237, "migrate_pages": 238, "move_pages": 239,
    "perf_event_open": 241, "fanotify_init": 262, "name_to_handle_at": 264, "open_by_handle_at": 265,
    "clock_adjtime": 266, "setns": 268, "process_vm_readv": 270, "process_vm_writev": 271, "kcmp": 272,
    "finit_module": 273, "memfd_create": 279, "bpf": 280, "execveat": 281, "userfaultfd": 282,
    "kexec_file_load": 294,
}  # fmt: skip

# Audit architecture, and the calls whose arguments are checked: clone, clone3, socketpair, ioctl.
MACHINES = {"x86_64": (0xC000003E, _X86_64, (56, 435, 53, 16)), "aarch64": (0xC00000B7, _AARCH64, (220, 435, 199, 29))}

_Instruction = tuple[int, int, int, int]


def seccomp_filter(machine: str) -> bytes:
    """Return the filter for a kind of processor.

    Args:
        machine: A value of ``platform.machine()``.

    Raises:
        KeyError: :data:`MACHINES` does not have this kind.
    """
    architecture, refused, (clone, clone3, socketpair, ioctl) = MACHINES[machine]
    refuse = _ERRNO | errno.EPERM
    program: list[_Instruction] = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 1, 0, architecture),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER),
    ]
    if machine == "x86_64":
        program += [(_AT_LEAST, 0, 1, _X32), (_RETURN, 0, 0, _KILL)]
    # Threads are made with clone; a process would be a second worker on the same pipes. The C library falls back to
    # clone when there is no clone3, whose arguments a filter cannot see.
    program += _when(clone3, [(_RETURN, 0, 0, _ERRNO | errno.ENOSYS)])
    program += _when(
        clone,
        [
            (_LOAD, 0, 0, _FIRST_ARGUMENT),
            (_ANY_BIT, 0, 1, _CLONE_THREAD),
            (_RETURN, 0, 0, _ALLOW),
            (_RETURN, 0, 0, refuse),
        ],
    )
    # Event loops need a pair of connected sockets; other sockets could reach other processes.
    program += _when(
        socketpair,
        [(_LOAD, 0, 0, _FIRST_ARGUMENT), (_EQUAL, 0, 1, _AF_UNIX), (_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, refuse)],
    )
    program += _when(
        ioctl,
        [
            (_LOAD, 0, 0, _FIRST_ARGUMENT + 8),
            (_EQUAL, 0, 1, _TIOCSTI),
            (_RETURN, 0, 0, refuse),
            (_RETURN, 0, 0, _ALLOW),
        ],
    )
    for number in sorted({*refused.values(), *_COMMON.values()}):
        program += _when(number, [(_RETURN, 0, 0, refuse)])
    program.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("<HBBI", *one) for one in program)


def _when(number: int, then: Sequence[_Instruction]) -> list[_Instruction]:
    """Return ``then`` for the call with this number; the number is already loaded."""
    return [(_EQUAL, 0, len(then), number), *then]
