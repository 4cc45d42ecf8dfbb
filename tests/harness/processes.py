"""Processes and their children, as /proc has them."""
import os
import pathlib
import signal


def parents():
    """Every process and its parent."""
    found = {}
    for entry in pathlib.Path('/proc').glob('[0-9]*'):
        try:
            found[int(entry.name)] = int((entry / 'stat').read_text().rpartition(')')[2].split()[1])
        except (OSError, ValueError, IndexError):
            continue
    return found


def descendants(pid):
    tree, found, new = parents(), set(), {pid}
    while new:
        found |= new
        new = {child for child, parent in tree.items() if parent in new} - found
    return found - {pid}


def lose_host(server):
    """As if the machine had gone down under this server: nothing that it started is left."""
    everything = descendants(server.process.pid)
    server.kill()
    for pid in everything:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
