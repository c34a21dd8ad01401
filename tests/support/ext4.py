"""A mounted ext4 that fails from now on, as a drive that vanishes."""
import fcntl
import os
import struct

SHUTDOWN, WITHOUT_FLUSH = 0x8004587D, 2  # EXT4_IOC_SHUTDOWN, EXT4_GOING_FLAGS_NOLOGFLUSH (linux/fs/ext4/ext4.h)


def shut_down(folder):
    """Every call on the file system fails with EIO, and what was not flushed is lost."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.ioctl(descriptor, SHUTDOWN, struct.pack("I", WITHOUT_FLUSH))
    finally:
        os.close(descriptor)
