"""Landlock and seccomp by system calls: a process and its children drop rights for good.

It runs in processes with untrusted code: the sandbox's children and the one that runs SQL. They load this file by its
path, in an interpreter with only the standard library. Sources: landlock(7), seccomp(2), and Linux's tables of system
calls for x86_64 and aarch64.
"""

from __future__ import annotations

import ctypes
import os
import platform
import resource
import struct
import sys
from contextlib import suppress

_libc = ctypes.CDLL(None, use_errno=True)
_SET_NO_NEW_PRIVS, _SET_SECCOMP, _FILTER = 38, 22, 2

# Landlock: the same numbers on every architecture.
_CREATE, _ADD, _RESTRICT = 444, 445, 446
_READ_FILE, _READ_DIR = 1 << 2, 1 << 3
#: Rights to files, by the version of Landlock that introduced them. All are dropped.
_FILE_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}

#: Machine names and their numbers in seccomp.
_MACHINES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
#: The system calls that Python needs to compute, read its library and answer, with their numbers on these machines.
#: Some are on x86_64 alone. All others are denied: no processes, threads, sockets or signals to others, and no new
#: executable memory from its own files.
_ALLOWED = {
    "read": (0, 63),
    "write": (1, 64),
    "close": (3, 57),
    "fstat": (5, 80),
    "poll": (7, None),
    "lseek": (8, 62),
    "mmap": (9, 222),
    "mprotect": (10, 226),
    "munmap": (11, 215),
    "brk": (12, 214),
    "rt_sigaction": (13, 134),
    "rt_sigprocmask": (14, 135),
    "rt_sigreturn": (15, 139),
    "pread64": (17, 67),
    "readv": (19, 65),
    "writev": (20, 66),
    "select": (23, None),
    "sched_yield": (24, 124),
    "mremap": (25, 216),
    "madvise": (28, 233),
    "dup": (32, 23),
    "nanosleep": (35, 101),
    "getpid": (39, 172),
    "exit": (60, 93),
    "uname": (63, 160),
    "fcntl": (72, 25),
    "getcwd": (79, 17),
    "readlink": (89, None),
    "gettimeofday": (96, 169),
    "getrusage": (98, 165),
    "sysinfo": (99, 179),
    "times": (100, 153),
    "getuid": (102, 174),
    "getgid": (104, 176),
    "geteuid": (107, 175),
    "getegid": (108, 177),
    "sigaltstack": (131, 132),
    "gettid": (186, 178),
    "time": (201, None),
    "futex": (202, 98),
    "sched_getaffinity": (204, 123),
    "getdents64": (217, 61),
    "clock_gettime": (228, 113),
    "clock_getres": (229, 114),
    "clock_nanosleep": (230, 115),
    "exit_group": (231, 94),
    "openat": (257, 56),
    "newfstatat": (262, 79),
    "readlinkat": (267, 78),
    "faccessat": (269, 48),
    "pselect6": (270, 72),
    "ppoll": (271, 73),
    "getrandom": (318, 278),
    "statx": (332, 291),
    "rseq": (334, 293),
    "faccessat2": (439, 439),
    "stat": (4, None),
    "lstat": (6, None),
    "access": (21, None),
    "open": (2, None),
}


def drop_rights(readable: list[str], *, memory: int, processor: int) -> None:
    """Drop all rights that the system lets a process drop.

    These are files except those below `readable`, the network, other processes, and memory (bytes) and processor time
    (seconds) beyond the limits. Without Landlock and seccomp, only limits remain.
    """
    for what, limit in (
        (resource.RLIMIT_AS, memory),
        (resource.RLIMIT_CPU, processor),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        with suppress(ValueError, OSError):  # macOS has no limit on address space
            resource.setrlimit(what, (limit, limit))
    if sys.platform == "linux":
        landlock(readable)
        seccomp()


def die_with_parent() -> None:
    """Ask the kernel to kill this process when its parent dies, so that nothing keeps running without a deadline."""
    _libc.prctl(1, 9, 0, 0, 0)


def landlock(readable: list[str]) -> bool:
    """Drop TCP, signals to others, and all access to files except reading below `readable`. Return False if
    unavailable."""
    version = _libc.syscall(_CREATE, None, ctypes.c_size_t(0), 1)
    if version < 1:
        return False
    files = (1 << _FILE_RIGHTS[min(version, 5)]) - 1
    tcp = 3 if version >= 4 else 0  # bind, connect
    scoped = 3 if version >= 6 else 0  # abstract sockets, signals
    attributes = struct.pack("QQQ", files, tcp, scoped)[: 24 if version >= 6 else 16 if version >= 4 else 8]
    ruleset = _libc.syscall(_CREATE, attributes, ctypes.c_size_t(len(attributes)), 0)
    if ruleset < 0:
        return False
    try:
        for path in readable:
            try:
                fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
            except OSError:
                continue
            rights = _READ_FILE | _READ_DIR if os.path.isdir(path) else _READ_FILE
            rule = struct.pack("=Qi", rights, fd)
            _libc.syscall(_ADD, ruleset, 1, rule, 0)
            os.close(fd)
        _libc.prctl(_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        return _libc.syscall(_RESTRICT, ruleset, 0) == 0
    finally:
        os.close(ruleset)


#: The allowed operations of fcntl: copy a descriptor, and read or set its flags. Forbidden are the receiver (F_SETOWN)
#: and number (F_SETSIG) of a signal: before Linux 6.12, Landlock does not stop the kernel's own signals.
_FCNTL = {"F_DUPFD": 0, "F_GETFD": 1, "F_SETFD": 2, "F_GETFL": 3, "F_DUPFD_CLOEXEC": 1030}
_F_SETFL, _O_ASYNC = 4, 0x2000

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _GIVE = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _DENY, _KILL = 0x7FFF0000, 0x00050001, 0x80000000
_NUMBER, _ARCHITECTURE, _SECOND, _THIRD = 0, 4, 24, 32  # offsets in seccomp_data; of arguments the lower half

_Instruction = tuple[int, int, int, int]  # code, jump if true, jump if false, operand


def seccomp() -> bool:
    """Deny all system calls not listed above, with the error "not permitted". Return False if unavailable."""
    if (machine := platform.machine()) not in _MACHINES:
        return False
    own = [*_MACHINES].index(machine)
    calls = {name: number for name, numbers in _ALLOWED.items() if (number := numbers[own]) is not None}
    program = seccomp_program(_MACHINES[machine], calls)
    code = b"".join(struct.pack("HBBI", *line) for line in program)
    buffer = ctypes.create_string_buffer(code)
    header = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(program), ctypes.addressof(buffer)))
    _libc.prctl(_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    return _libc.prctl(_SET_SECCOMP, _FILTER, header, 0, 0) == 0


def seccomp_program(architecture: int, calls: dict[str, int]) -> list[_Instruction]:
    """Return the filter as a classic BPF program: it kills calls of another architecture, and denies unlisted calls."""
    numbers = sorted(set(calls.values()) - {calls["fcntl"]})
    program = [(_LOAD, 0, 0, _ARCHITECTURE), (_EQUAL, 1, 0, architecture), (_GIVE, 0, 0, _KILL)]
    program += [(_LOAD, 0, 0, _NUMBER)]
    program += [(_AT_LEAST, 0, 1, 0x40000000), (_GIVE, 0, 0, _KILL)]  # the x32 numbers of x86_64
    fcntl = _fcntl_rules()
    program += [(_EQUAL, 0, len(fcntl), calls["fcntl"]), *fcntl]
    program += [(_EQUAL, len(numbers) - i, 0, number) for i, number in enumerate(numbers)]
    return [*program, (_GIVE, 0, 0, _DENY), (_GIVE, 0, 0, _ALLOW)]


def _fcntl_rules() -> list[_Instruction]:
    commands = sorted(_FCNTL.values())
    rules = [(_LOAD, 0, 0, _SECOND), (_EQUAL, 0, 3, _F_SETFL)]
    rules += [(_LOAD, 0, 0, _THIRD), (_ANY_BIT, len(commands) + 1, 0, _O_ASYNC), (_GIVE, 0, 0, _ALLOW)]
    rules += [(_EQUAL, len(commands) - i, 0, command) for i, command in enumerate(commands)]
    return [*rules, (_GIVE, 0, 0, _DENY), (_GIVE, 0, 0, _ALLOW)]
