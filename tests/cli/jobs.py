"""What the tests of the launcher share: real jobs, their output, and what they leave behind."""
import os
import re
import signal
import subprocess
import sys
import threading
import time
import unittest
import uuid

# ctest says where the build is; by hand it is the usual place.
BUILD = os.environ.get("LOCKSTEP_BUILD") or os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../build")
LOCKSTEP = os.environ.get("LOCKSTEP_BIN") or os.path.join(BUILD, "bin/lockstep")
with open(os.path.join(BUILD, "CMakeCache.txt")) as cache:
    settings = cache.read()
SANITIZED = bool(re.search(r"^LOCKSTEP_SANITIZE:STRING=.", settings, re.M))
EMULATED = "\nCMAKE_TOOLCHAIN_FILE:" in settings  # a cross build, under qemu-user
GONE = 20  # seconds; what is not gone by then would stay: programs of these tests sleep for a minute
LIMIT = 45 * (6 if EMULATED else 1)  # seconds; nothing here takes long, so on a busy machine, too, more means it hangs
# What a launcher around the test might have set must not reach the jobs.
CLEAN = {k: v for k, v in os.environ.items() if not re.match(r"RANK$|WORLD_SIZE$|OMP_NUM_THREADS$|OMPI_|PMI|SLURM_", k)}


def rank_program(name):
    """The path of tests/cli/rank_NAME.c, built."""
    return os.path.join(BUILD, "tests", "rank_" + name)


class Job:
    """A job that runs while the test looks on. All its processes carry a mark in their environment."""

    def __init__(self, *args, env=None, stdin=subprocess.DEVNULL, read=("out", "err"), **popen):
        self.mark = uuid.uuid4().hex
        env = dict(CLEAN, LOCKSTEP_TEST_MARK=self.mark, **(env or {}))
        self.started = time.monotonic()
        self.process = subprocess.Popen([LOCKSTEP, *args], env=env, stdin=stdin, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, **popen)
        self.pid = self.process.pid
        self.news = threading.Condition()
        self.text = {"out": "", "err": ""}
        self.readers = [threading.Thread(target=self._read, args=(n, f), daemon=True)
                        for n, f in (("out", self.process.stdout), ("err", self.process.stderr)) if n in read]
        for r in self.readers:
            r.start()

    def _read(self, name, file):
        while data := os.read(file.fileno(), 65536):
            with self.news:
                self.text[name] += data.decode(errors="replace")
                self.news.notify_all()

    @property
    def out(self):
        return self.text["out"]

    @property
    def err(self):
        return self.text["err"]

    def wait_for(self, pattern, where="out", limit=LIMIT):
        """Waits until `pattern` is printed and returns the match."""
        until = time.monotonic() + limit
        with self.news:
            while not (m := re.search(pattern, self.text[where], re.M)):
                left = until - time.monotonic()
                if left <= 0 or not self.news.wait(left):
                    raise AssertionError(f"no '{pattern}' in std{where} within {limit} s; out: {self.out!r}, "
                                         f"err: {self.err!r}")
        return m

    def rank_pids(self, count):
        """The pids that the ranks printed as 'pid=N', by rank."""
        return [int(self.wait_for(rf"^\[{r}\] pid=(\d+)$")[1]) for r in range(count)]

    def end(self, limit=LIMIT):
        """Waits for the job's end and returns its exit code."""
        try:
            code = self.process.wait(limit)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise AssertionError(f"the job hangs; out: {self.out!r}, err: {self.err!r}")
        for r in self.readers:
            r.join(limit)
        self.process.stdout.close()
        self.process.stderr.close()
        return code

    def processes(self):
        """Pids of processes of this job that are still there (zombies have no environment and do not count)."""
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/environ", "rb") as f:
                    if self.mark.encode() in f.read():
                        found.append(int(pid))
            except OSError:
                pass
        return found

    def gone(self):
        """Waits until no process of the job is left."""
        until = time.monotonic() + GONE
        while left := self.processes():
            if time.monotonic() > until:
                for pid in left:
                    os.kill(pid, signal.SIGKILL)
                raise AssertionError(f"{len(left)} processes are left after {GONE} s: {left}")
            time.sleep(0.005)


def run(*args, env=None, **more):
    """A job from start to end: exit code, stdout, stderr. Nothing of it may be left."""
    job = Job(*args, env=env, **more)
    code = job.end()
    job.gone()
    return code, job.out, job.err


class Case(unittest.TestCase):
    maxDiff = None

    def check(self, result, code, out=None, err=None):
        """Exit code as expected, and the patterns occur in the output."""
        got, stdout, stderr = result
        said = f"exit code {got}\nout: {stdout!r}\nerr: {stderr!r}"
        self.assertEqual(got, code, said)
        for pattern, text in ((out, stdout), (err, stderr)):
            if pattern is not None and not re.search(pattern, text, re.M):
                self.fail(f"no '{pattern}' in the output\n{said}")


def main():
    shared = set(os.listdir("/dev/shm"))
    result = unittest.main(exit=False, argv=[sys.argv[0], *sys.argv[1:]]).result
    left = [n for n in set(os.listdir("/dev/shm")) - shared if "lockstep" in n]
    if left:
        sys.exit(f"left in /dev/shm: {left}")
    sys.exit(0 if result.wasSuccessful() and result.testsRun else 1)
