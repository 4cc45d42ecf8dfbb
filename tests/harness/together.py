"""Tests of one module at the same time, since most of them mostly wait. What each has to say is told in
one piece when it ends, so a report reads as if they had run one after the other."""
import concurrent.futures
import unittest

TOLD = ('startTest', 'stopTest', 'addSuccess', 'addFailure', 'addError', 'addSkip', 'addExpectedFailure',
        'addUnexpectedSuccess', 'addSubTest')


class Record(unittest.TestResult):
    """What is to be told to the real result, in its order."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def tell(self, result):
        for name, arguments in self.calls:
            getattr(result, name)(*arguments)


def recorded(name):
    def method(self, *arguments):
        self.calls.append((name, arguments))
        getattr(unittest.TestResult, name)(self, *arguments)
    return method


for _name in TOLD:
    setattr(Record, _name, recorded(_name))


def run_one(test):
    record = Record()
    test.run(record)
    return record


class Together(unittest.TestSuite):
    """Each of `tests`, single ones or suites of whole classes, in a thread of its own, some at once."""

    def __init__(self, tests, at_once):
        super().__init__(tests)
        self.at_once = at_once

    def run(self, result, debug=False):
        with concurrent.futures.ThreadPoolExecutor(self.at_once) as pool:
            for done in concurrent.futures.as_completed([pool.submit(run_one, test) for test in self]):
                done.result().tell(result)
        return result


def arrange(standard, waits, at_once):
    """A module's tests: those that `waits` says yes to at once, then the others, whatever is added later."""
    chosen, others = [], []
    for suite in standard:
        for test in suite:
            (chosen if waits(test) else others).append(test)
    return unittest.TestSuite([Together(chosen, at_once), *others])


def arrange_classes(standard, waits, at_once):
    """The same by whole classes, whose tests have one sandbox in common."""
    suites = [suite for suite in standard if suite.countTestCases()]
    chosen = [suite for suite in suites if waits(next(iter(suite)))]
    return unittest.TestSuite([Together(chosen, at_once), *(s for s in suites if s not in chosen)])
