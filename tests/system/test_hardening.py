"""The programs as they are built for users: what the compiler and the linker were to put into them."""
import json
import os
import pathlib
import platform
import re
import struct
import unittest

from harness.server import ROOT

RELEASE = pathlib.Path(os.environ.get('ATOLL_TEST_RELEASE', ROOT / 'build'))
PROGRAMS = ('atoll', 'atoll-warden', 'atoll-guest')
ET_DYN, PT_LOAD, PT_DYNAMIC, PT_INTERP = 3, 1, 2, 3
PT_GNU_STACK, PT_GNU_RELRO = 0x6474e551, 0x6474e552
DT_NULL, DT_NEEDED, DT_RPATH, DT_TEXTREL, DT_FLAGS, DT_RUNPATH, DT_FLAGS_1 = 0, 1, 15, 22, 30, 29, 0x6ffffffb
DF_TEXTREL, DF_BIND_NOW, DF_1_NOW, DF_1_PIE = 4, 8, 1, 0x08000000
SHT_SYMTAB, SHT_DYNSYM = 2, 11
W, X = 2, 1
FLAGS = ('-fstack-protector-strong', '-fstack-clash-protection', '-D_FORTIFY_SOURCE=3', '-O2',
         '-fcf-protection=full' if platform.machine() == 'x86_64' else '-mbranch-protection=standard')
ENDBR64 = b'\xf3\x0f\x1e\xfa'


class Elf:
    """As much of a 64-bit little-endian file as is looked at here."""

    def __init__(self, path):
        self.data = path.read_bytes()
        assert self.data[:6] == b'\x7fELF\x02\x01', path
        self.type, = struct.unpack_from('<H', self.data, 16)
        ph, sh = struct.unpack_from('<QQ', self.data, 32)
        ph_size, ph_count, sh_size, sh_count = struct.unpack_from('<HHHH', self.data, 54)
        self.segments = [struct.unpack_from('<IIQQQQQQ', self.data, ph + i * ph_size)
                         for i in range(ph_count)]
        self.sections = [struct.unpack_from('<IIQQQQIIQQ', self.data, sh + i * sh_size)
                         for i in range(sh_count)]

    def of_type(self, kind):
        return [segment for segment in self.segments if segment[0] == kind]

    def dynamic(self):
        """Pairs of tag and value."""
        for segment in self.of_type(PT_DYNAMIC):
            for at in range(segment[2], segment[2] + segment[5], 16):
                tag, value = struct.unpack_from('<QQ', self.data, at)
                if tag == DT_NULL:
                    return
                yield tag, value

    def symbols(self):
        """Names and addresses, of the file's own table and of the dynamic one."""
        found = {}
        for section in self.sections:
            if section[1] not in (SHT_SYMTAB, SHT_DYNSYM):
                continue
            names = self.sections[section[6]][4]
            for at in range(section[4], section[4] + section[5], 24):
                name, _, _, _, value, _ = struct.unpack_from('<IBBHQQ', self.data, at)
                end = self.data.index(b'\0', names + name)
                found.setdefault(self.data[names + name:end].decode().split('@')[0], value)
        return found

    def bytes_at(self, address, count):
        for _, _, offset, start, _, size, _, _ in self.of_type(PT_LOAD):
            if start <= address < start + size:
                return self.data[offset + address - start:][:count]
        return b''


@unittest.skipUnless((RELEASE / 'atoll').exists(), 'there is no release build')
class Hardening(unittest.TestCase):
    def for_each(self, check):
        for name in PROGRAMS:
            with self.subTest(name):
                check(name, Elf(RELEASE / name))

    def test_they_are_position_independent(self):
        def check(_, elf):
            self.assertEqual(elf.type, ET_DYN)
            self.assertTrue(dict(elf.dynamic()).get(DT_FLAGS_1, 0) & DF_1_PIE)

        self.for_each(check)

    def test_relocations_are_done_at_start_and_read_only_after(self):
        def check(_, elf):
            self.assertTrue(elf.of_type(PT_GNU_RELRO))
            tags = dict(elf.dynamic())
            self.assertTrue(tags.get(DT_FLAGS, 0) & DF_BIND_NOW or tags.get(DT_FLAGS_1, 0) & DF_1_NOW)
            self.assertNotIn(DT_TEXTREL, tags)
            self.assertFalse(tags.get(DT_FLAGS, 0) & DF_TEXTREL)

        self.for_each(check)

    def test_nothing_is_writable_and_executable(self):
        def check(_, elf):
            self.assertTrue(elf.of_type(PT_GNU_STACK))
            for kind, flags, *_ in elf.segments:
                if kind in (PT_LOAD, PT_GNU_STACK):
                    self.assertNotEqual(flags & (W | X), W | X)
            self.assertFalse(elf.of_type(PT_GNU_STACK)[0][1] & X)

        self.for_each(check)

    def test_libraries_come_from_the_system_only(self):
        def check(name, elf):
            tags = dict(elf.dynamic())
            self.assertNotIn(DT_RPATH, tags)
            self.assertNotIn(DT_RUNPATH, tags)
            if name == 'atoll-guest':  # which runs on any tree
                self.assertNotIn(DT_NEEDED, tags)
                self.assertFalse(elf.of_type(PT_INTERP))

        self.for_each(check)

    def test_stacks_and_buffers_are_guarded(self):
        def check(_, elf):
            symbols = elf.symbols()
            self.assertIn('__stack_chk_fail', symbols)
            self.assertTrue({'__snprintf_chk', '__vsnprintf_chk', '__memcpy_chk'} & set(symbols))

        self.for_each(check)

    @unittest.skipUnless(platform.machine() == 'x86_64', 'of this processor family')
    def test_functions_begin_with_a_landing_pad(self):
        def check(_, elf):
            self.assertEqual(elf.bytes_at(elf.symbols()['main'], 4), ENDBR64)

        self.for_each(check)

    def test_every_file_was_compiled_so(self):
        commands = json.loads((RELEASE / 'compile_commands.json').read_text())
        ours = [entry for entry in commands if re.search(r'\bsrc/', entry['file'])]
        self.assertGreater(len(ours), 100)
        for entry in ours:
            for flag in FLAGS:
                self.assertIn(flag, entry['command'].split(), entry['file'])


if __name__ == '__main__':
    unittest.main()
