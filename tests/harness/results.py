"""What came of tests: counts, and what there is to say about every failure and every skip."""
import json
import re

TAP_LINE = re.compile(r'^(not )?ok\b[ \d]*(?:- )?(.*?)(?:\s+#\s*SKIP\s*(.*))?$', re.IGNORECASE)


class Results:
    def __init__(self):
        self.passed, self.failures, self.skips = 0, [], []
        self.unstable = []  # failures that a second run, with nothing beside it, did not show again

    def ok(self, count=1):
        self.passed += count

    def fail(self, name, output=''):
        self.failures.append((name, output.strip()))

    def skip(self, name, reason):
        self.skips.append((name, reason or 'no reason given'))

    def check(self, name, problem):
        if problem:
            self.fail(name, problem)
        else:
            self.ok()

    def counts(self):
        return f'{self.passed} passed, {len(self.failures)} failed, {len(self.skips)} skipped'

    def add(self, other):
        self.passed += other.passed
        self.failures += other.failures
        self.skips += other.skips
        self.unstable += other.unstable

    @classmethod
    def of(cls, told):
        """From what `vars` said of one, in another process."""
        results = cls()
        vars(results).update(told)
        return results

    def report(self):
        """All of it on standard output, the counts alone on the last line; the exit status."""
        for name, output in self.failures:
            print(f'\n--- FAILED {name}\n{output}')
        for name, output in self.unstable:
            print(f'\n--- UNSTABLE {name}\n{output}')
        if self.skips:
            print('\nSKIPPED:')
            for name, reason in self.skips:
                print(f'  {name}: {reason}')
        if self.unstable:
            print(f'\nUNSTABLE: {len(self.unstable)} failed beside other tests and passed alone, see above:')
            for name, _ in self.unstable:
                print(f'  {name}')
        print()
        print(self.counts(), flush=True)
        return 1 if self.failures or not self.passed else 0

    # --- as the runners tell it ---

    def count_tap(self, name, text, finished):
        """Every test of a TAP program; a program that failed without saying where counts as one more."""
        failed = 0
        notes = []
        for line in text.splitlines():
            match = TAP_LINE.match(line)
            if not match:
                notes.append(line)
                continue
            bad, test, reason = match.groups()
            if reason is not None:
                self.skip(f'{name}: {test}', reason)
            elif bad:
                failed += 1
                self.fail(f'{name}: {test}', '\n'.join(notes[-20:]))
            else:
                self.ok()
            notes = []
        if not finished and not failed:
            self.fail(name, '\n'.join(text.splitlines()[-40:]))

    def count_meson(self, line, label):
        """One line of meson's testlog.json."""
        test = json.loads(line)
        name = f"{test['name']} ({label})"
        output = (test.get('stdout') or '') + (test.get('stderr') or '')
        if 'TAP' in output or re.search(r'^1\.\.\d', output, re.MULTILINE):
            self.count_tap(name, output, test['result'] in ('OK', 'SKIP'))
        elif test['result'] == 'SKIP':
            self.skip(name, output)
        else:
            self.check(name, '' if test['result'] == 'OK' else f"{test['result']}\n{output[-4000:]}")

    def count_unittest(self, name, text, status):
        ran = re.search(r'^Ran (\d+) tests?', text, re.MULTILINE)
        bad = re.findall(r'^(?:FAIL|ERROR): (.*)$', text, re.MULTILINE)
        skipped = re.findall(r"^(\S+) .*\.\.\. skipped '?(.*?)'?$", text, re.MULTILINE)
        for test, reason in skipped:
            self.skip(f'{name}: {test}', reason)
        self.ok(max(0, int(ran[1]) - len(set(bad)) - len(skipped)) if ran else 0)
        for block in re.split(r'^={70}$', text, flags=re.MULTILINE)[1:]:
            title = re.match(r'\s*(?:FAIL|ERROR): (.*)', block)
            self.fail(f"{name}: {title[1] if title else '?'}", block[-6000:])
        if not ran or (status and not bad):
            self.fail(name, text[-4000:])

    def count_node(self, name, text, noise):
        """Node's TAP nests; the numbers at its end count each test once."""
        end = dict(re.findall(r'^# (tests|pass|fail|skipped|cancelled) (\d+)$', text, re.MULTILINE))
        if 'tests' not in end:
            self.fail(name, (text + noise)[-4000:])
            return
        self.ok(int(end['pass']))
        lines = text.splitlines()
        found = 0
        for i, line in enumerate(lines):
            match = TAP_LINE.match(line.strip())
            if not match:
                continue
            bad, test, reason = match.groups()
            block = '\n'.join(lines[i:i + 40])
            if reason is not None:
                self.skip(f'{name}: {test}', reason)
            elif bad and 'subtestsFailed' not in block.split('\n...')[0]:
                found += 1
                self.fail(f'{name}: {test}', block.split('\n  ...')[0])
        missing = int(end['fail']) + int(end.get('cancelled', 0)) - found
        if missing > 0 and not found:
            self.fail(name, text[-4000:])
