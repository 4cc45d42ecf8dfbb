"""The files of a volume as the host sees them, whichever kind of volume it is."""
import contextlib
import os
import pathlib
import subprocess
import tempfile


def attached(volume):
    """The loop device that has it; None: nobody uses it. To attach another would be a second file system on
    the same blocks."""
    for path in pathlib.Path('/sys/block').glob('loop*/loop/backing_file'):
        with contextlib.suppress(OSError):
            if volume in path.read_text():
                return '/dev/' + path.parent.parent.name
    return None


@contextlib.contextmanager
def on_host(data, volume):
    """Its root directory, for as long as this lasts. The volume must be in use."""
    plain = pathlib.Path(data) / 'volumes' / volume
    if plain.exists():
        yield plain
        return
    with tempfile.TemporaryDirectory(prefix='atoll-mount-') as place:
        subprocess.run(['mount', '-t', 'ext4', attached(volume), place], check=True)
        try:
            yield pathlib.Path(place) / 'data'
        finally:
            subprocess.run(['umount', '-l', place], check=True)


def take(path):
    """As the server's own, in a volume."""
    owner = os.stat(path.parent)
    os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)


def make_plain(server, volume):
    """The new volume becomes one as servers made them that knew no images. The server is started again."""
    plain = pathlib.Path(server.data) / 'volumes' / volume
    owner = plain.parent.stat()
    server.stop()
    (plain.parent / '.images' / volume).unlink()
    plain.mkdir()
    plain.chmod(0o777)
    os.chown(plain, owner.st_uid, owner.st_gid)
    server.start()
    return plain
