"""Starts programs as ranks, and reads what they recorded."""
import json
import os
import socket
import subprocess
import sys

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
PROGRAM = os.environ.get("LOCKSTEP_BIN") or os.path.join(os.path.dirname(sys.executable), "lockstep")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Outcome:
    """What the ranks left: exit codes and output, by rank."""

    def __init__(self, codes, out, err):
        self.codes, self.out, self.err = codes, out, err

    def ok(self):
        assert all(code == 0 for code in self.codes), f"exit codes {self.codes}\n" + "\n".join(self.err)
        return self


def run_ranks(ranks, program, *arguments, timeout=400, before=(), **variables):
    """Runs tests/python/programs/PROGRAM as ranks that find each other as under torchrun. `before`: words of a command that starts it."""
    common = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(ranks), "OMP_NUM_THREADS": "1"}
    common.update({k: str(v) for k, v in variables.items()})
    command = [*before, sys.executable, os.path.join(HERE, "programs", program), *map(str, arguments)]
    started = [
        subprocess.Popen(
            command,
            env={**common, "RANK": str(r), "LOCAL_RANK": str(r)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for r in range(ranks)
    ]
    try:
        texts = [p.communicate(timeout=timeout) for p in started]
    finally:
        for p in started:
            if p.poll() is None:
                p.kill()
    return Outcome([p.returncode for p in started], [t[0] for t in texts], [t[1] for t in texts])


def lockstep(*arguments):
    """Runs the program and returns what it prints."""
    return subprocess.run([PROGRAM, *map(str, arguments)], check=True, stdout=subprocess.PIPE, text=True, timeout=100).stdout


@pytest.fixture
def run(tmp_path):
    """run(case): the training loop of programs/train.py on 2 ranks; run.folder is its folder."""

    def start(case, *arguments, ranks=2, **variables):
        start.outcome = run_ranks(ranks, "train.py", start.folder, case, *arguments, **variables).ok()
        return start.outcome

    start.folder = tmp_path / "run"
    start.report = lambda: json.loads(lockstep("report", "--json", start.folder))
    start.warnings = lambda: [
        json.loads(line)["warning"] for f in sorted(start.folder.glob("warnings-*.jsonl")) for line in f.read_text().splitlines()
    ]
    return start
