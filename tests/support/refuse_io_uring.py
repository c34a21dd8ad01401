"""Runs a program to which the kernel refuses io_uring. usage: refuse_io_uring.py EPERM|ENOSYS PROGRAM ARGUMENT..."""
import ctypes
import errno
import os
import struct
import sys

PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
RET_ERRNO, RET_ALLOW = 0x00050000, 0x7FFF0000
LOAD_NUMBER, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06
IO_URING_SETUP = 425  # the same on every architecture


class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p)]


def refuse(code):
    """From now on io_uring_setup answers `code`, here and in what is started from here."""
    instructions = b"".join(struct.pack("HBBI", *instruction) for instruction in (
        (LOAD_NUMBER, 0, 0, 0), (JUMP_IF_EQUAL, 0, 1, IO_URING_SETUP), (RETURN, 0, 0, RET_ERRNO | code),
        (RETURN, 0, 0, RET_ALLOW)))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_NO_NEW_PRIVS)")
    if libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(Program(4, instructions)), 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_SECCOMP)")


if __name__ == "__main__":
    refuse(getattr(errno, sys.argv[1]))
    os.execvp(sys.argv[2], sys.argv[2:])
