"""Faults of a running server of the sanitizers' build: numbers in a file that it has mapped (src/base/fault.h)."""
import pathlib
import struct
import time

NAMES = ('clock_us', 'create_every', 'create_errno', 'guest_deaf', 'care_ms', 'sync_errno', 'job_ms')


class Faults:
    """Written before the server starts; set() changes them while it runs."""

    def __init__(self, directory):
        self.path = pathlib.Path(directory) / 'faults'
        self.path.write_bytes(bytes(8 * len(NAMES)))
        self.path.chmod(0o644)

    def set(self, **values):
        with open(self.path, 'r+b') as file:
            for name, value in values.items():
                file.seek(8 * NAMES.index(name))
                file.write(struct.pack('=q', value))


class Table:
    """What was tried and what came of it, for people."""

    def __init__(self, *titles):
        self.rows = [titles]

    def add(self, *cells):
        self.rows.append(tuple(str(cell) for cell in cells))

    def text(self):
        widths = [max(len(row[i]) for row in self.rows) for i in range(len(self.rows[0]))]
        lines = ['  '.join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in self.rows]
        return '\n'.join([lines[0], '-' * len(lines[0]), *lines[1:]])


def until(test, seconds, every=0.1):
    """What it returns as soon as that is something, or None when the time is over."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = test()
        if found:
            return found
        time.sleep(every)
    return None
