#!/usr/bin/env python3
"""PyTorch's own tests of torch.distributed, which its wheel contains, on backend lockstep:

    python pytorch_tests.py [RANKS, default 2] [GATE, default all] [words that a test's name must have one of...]

Many tests are for one backend only and decide so when they are imported: GATE is the backend that is named then (gloo, or mpi for all-to-all
and groups of few ranks). The backend that runs is lockstep, also where a test asks for gloo. Prints a line a test, and counts at the end; exit code 1 if one failed.
With "all", both gates are run, and a test that can run behind one of them counts once: it passes if it does behind one of them.
Needs: pip install expecttest hypothesis numpy."""
import os
import re
import subprocess
import sys
import tempfile

ranks = int(sys.argv[1]) if len(sys.argv) > 1 else 2
gate = sys.argv[2] if len(sys.argv) > 2 else "all"
words = sys.argv[3:]


def run_all():
    outcomes = {}  # by test: {gate: (outcome, reason)}
    for name in "gloo", "mpi":
        job = subprocess.Popen([sys.executable, __file__, str(ranks), name, *words], stdout=subprocess.PIPE, text=True)
        for line in job.stdout:
            outcome, test, *reason = line.split(None, 2) if line.startswith(("pass ", "FAIL ", "skip ")) else ("", "")
            if outcome:
                outcomes.setdefault(test, {})[name] = outcome, reason[0].strip() if reason else ""
        if job.wait() < 0:
            sys.exit(f"pytorch_tests.py: the run behind {name} ended with signal {-job.returncode}")
    passed = [t for t, o in outcomes.items() if "pass" in [v[0] for v in o.values()]]
    failed = {t: o for t, o in outcomes.items() if "FAIL" in [v[0] for v in o.values()]}
    for test, by_gate in failed.items():
        print(f"{test}: " + "; ".join(f"{g}: {o} {reason}" for g, (o, reason) in by_gate.items()))
    can_run = len({*passed, *failed})
    print(f"{ranks} ranks: {len(passed)} of {can_run} that can run pass, {len(outcomes) - can_run} are skipped")
    return len(passed) < can_run


if gate == "all":
    sys.exit(run_all())
temporary = tempfile.TemporaryDirectory()
for folder in "barrier", "test_dir":
    os.mkdir(os.path.join(temporary.name, folder))
os.environ.update(BACKEND=gate, WORLD_SIZE=str(ranks), TEMP_DIR=temporary.name, OMP_NUM_THREADS="1")

import unittest  # noqa: E402

import torch  # noqa: E402
import torch.testing._internal.distributed.distributed_test as suite  # noqa: E402

import lockstep_torch  # noqa: E402

torch.set_num_threads(1)
# Where gloo means lockstep, tests may continue with the name that they look at.
lockstep_torch.use_instead_of_gloo()
if gate != "gloo":
    suite.BACKEND = "lockstep"
for feature in "plugin", "ddp", "subgroup":
    suite.DistTestCases.backend_feature[feature].add("lockstep")


class OnLockstep(suite.TestDistBackend, suite.DistributedTest._DistTestBase):
    def setUp(self):
        super().setUp()
        self._start_processes(torch.multiprocessing.get_context("fork").Process)  # which has torch already


class Lines(unittest.TextTestResult):
    def note(self, test, outcome, why=""):
        print(f"{outcome:7} {test._testMethodName} {' '.join(str(why).split())[-300:]}", flush=True)

    def addSuccess(self, test):
        super().addSuccess(test)
        self.note(test, "pass")

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.note(test, "skip", reason)

    def addFailure(self, test, error):
        super().addFailure(test, error)
        self.note(test, "FAIL", error[1])

    def addError(self, test, error):
        super().addError(test, error)
        self.note(test, "FAIL", error[1])


if __name__ == "__main__":
    tests = unittest.defaultTestLoader.loadTestsFromTestCase(OnLockstep)
    if ranks < 3:  # the group of these tests has a rank 2, which they look at with some backends only
        tests = [t for t in tests if not re.search("_group($|_)", t._testMethodName) or "full_group" in t._testMethodName]
    chosen = unittest.TestSuite(t for t in tests if not words or any(w in t._testMethodName for w in words))
    with open(os.devnull, "w") as nowhere:
        result = unittest.TextTestRunner(resultclass=Lines, stream=nowhere).run(chosen)
    failed = len(result.failures) + len(result.errors)
    print(f"{result.testsRun - failed - len(result.skipped)} passed, {failed} failed, {len(result.skipped)} skipped")
    sys.exit(failed > 0)
