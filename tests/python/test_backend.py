"""Backend "lockstep" without a launcher of ours: ranks that find each other as under torchrun."""
import os
import shutil
import subprocess
import sys

import pytest
import torch
from conftest import HERE, PROGRAM, free_port, run_ranks


@pytest.mark.parametrize("ranks", [2, 3])
def test_collectives_are_those_of_gloo(ranks):
    outcome = run_ranks(ranks, "collectives.py").ok()
    assert all("compared" in out for out in outcome.out)


@pytest.mark.parametrize("ranks", [2, 3])
def test_random_calls_are_those_of_gloo(ranks):
    outcome = run_ranks(ranks, "beside_gloo.py", 300, ranks)
    assert all(code == 0 for code in outcome.codes) and all(" 0 bad" in out for out in outcome.out), "".join(outcome.out + outcome.err)


@pytest.mark.parametrize("ranks", [2, 4])
def test_odd_uses(ranks):
    outcome = run_ranks(ranks, "odd_uses.py")
    assert all(code == 0 for code in outcome.codes), "".join(outcome.out + outcome.err)


def test_ways_of_ddp_give_the_weights_of_gloo():
    outcome = run_ranks(2, "ddp_ways.py")
    assert all(code == 0 for code in outcome.codes), "".join(outcome.out + outcome.err)


@pytest.mark.parametrize("launcher", ["torchrun", "lockstep run", "mpirun", "spawn"])
def test_launchers(launcher):
    port = str(free_port())
    command = {
        "torchrun": [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "3"],
        "lockstep run": [PROGRAM, "run", "-n", "3", "--", sys.executable],
        "mpirun": ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "3", sys.executable],
        "spawn": [sys.executable],
    }[launcher]
    if launcher == "mpirun" and not (shutil.which("mpirun") and "Open MPI" in subprocess.getoutput("mpirun --version")):
        pytest.skip("Open MPI is not installed")
    arguments = ["spawn", port] if launcher == "spawn" else []
    done = subprocess.run(
        [*command, os.path.join(HERE, "programs", "launched.py"), *arguments],
        env={**os.environ, "OMP_NUM_THREADS": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port},
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for rank in range(3):
        assert f"rank {rank} of 3: 6\n" in done.stdout, done.stdout


def test_ddp_gives_the_weights_of_gloo(run, tmp_path):
    states = []
    for backend in "gloo", "lockstep":
        run.folder = tmp_path / backend
        run("plain", BACKEND=backend)
        states.append([torch.load(run.folder / f"state-{r}.pt") for r in range(2)])
    for one, two in zip(*states):
        assert all(torch.equal(one[k], two[k]) for k in one)


@pytest.mark.parametrize("case", ["room", "full"])
def test_buckets_move_to_shared_memory(case):
    assert all("done" in out for out in run_ranks(2, "buckets.py", case).ok().out)


def test_shared_memory_of_a_container_is_too_small():
    before = ["unshare", "-m", "sh", "-c", 'mount -t tmpfs -o size=64k tmpfs /dev/shm && exec "$@"', "sh"]
    if subprocess.run([*before, "true"], capture_output=True).returncode:
        pytest.skip("no mount namespace can be made here")
    assert all("done" in out for out in run_ranks(2, "buckets.py", "tiny", before=before).ok().out)


def test_fsdp2_gives_the_weights_of_gloo():
    gloo, ours = (run_ranks(2, "fsdp.py", BACKEND=backend).ok().out for backend in ("gloo", "lockstep"))
    assert "sum" in gloo[0] and gloo == ours


def test_recording_on_lockstep(run):
    run("backward", BACKEND="lockstep")
    report = run.report()
    assert report["by_rank"][0]["transport"] == "shm"
    assert len(report["steps"]) == 16
    findings = report["findings"]
    assert any(f["rank"] == 1 and (f["phase"] == "backward" or "backward" in f["what"]) for f in findings), findings
    assert run.warnings() == []


@pytest.mark.parametrize("case", ["no_sync", "drift"])
def test_broken_synchronization_on_lockstep(run, case):
    run(case, BACKEND="lockstep")
    assert run.warnings()


def test_gloo_can_mean_lockstep(run):
    run("none", LOCKSTEP_TORCH=1)
    assert run.report()["by_rank"][0]["transport"] == "shm"


@pytest.mark.parametrize(
    "case, words",
    [
        ("kill", ["rank 1"]),
        ("exit", ["rank 1"]),
        ("mismatch", ["rank 0 runs allreduce", "4 of float32", "3 of float32"]),
        ("shape of a gather", ["tensors differ"]),
        ("different models", ["rank 1 has ended and will not call broadcast", "appears not to match sizes of the same param in process 0"]),
        ("backward", ["rank 1", "will not call allreduce"]),
        ("late", ["rank 1 did not call allreduce", "within 2.0 s"]),
        ("stop", ["rank 1 did not call allreduce", "stopped"]),
    ],
)
def test_failures_have_names(case, words):
    outcome = run_ranks(2, "fail.py", case)
    said = outcome.out[0] + outcome.out[1]
    assert all(word in said for word in words), said + outcome.err[0] + outcome.err[1]
    survivor = 1 if case == "shape of a gather" else 0
    assert outcome.codes[survivor] == 3, outcome.codes
    assert float(outcome.out[survivor].split()[0]) < 100, outcome.out  # not the timeout of 30 minutes


@pytest.mark.parametrize("case", ["arguments", "shapes", "dtypes", "splits", "kernels", "another user"])
def test_bad_input_is_refused(case):
    if case == "another user" and os.getuid():
        pytest.skip("only root can start a process of another user")
    run_ranks(2, "refused.py", case).ok()


def test_a_library_of_another_version_is_refused(tmp_path):
    if not shutil.which("cc"):
        pytest.skip("no compiler")
    (tmp_path / "other.c").write_text('const char *ls_version(void) { return "9.9.9"; }')
    subprocess.run(["cc", "-shared", "-o", tmp_path / "liblockstep.so", tmp_path / "other.c"], check=True)
    for library, words in (tmp_path / "liblockstep.so", "is liblockstep 9.9.9, but this package needs 0.1"), ("/nowhere.so", "cannot be loaded"):
        done = subprocess.run(
            [sys.executable, "-c", "import lockstep_torch"],
            env={**os.environ, "LOCKSTEP_LIBRARY": str(library)},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 1 and words in done.stderr, done.stderr


def test_freed_memory_is_kept():
    code = """
import torch, lockstep_torch
def resident():
    return int(open("/proc/self/statm").read().split()[1])
torch.set_num_threads(1)
torch.ones(16 << 20)
before = resident()
torch.ones(16 << 20)
assert resident() < before + 4096, "large tensors are given back"
assert lockstep_torch.keep_memory()
torch.ones(16 << 20)
assert resident() > before + 12000, "and now they are not"
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=100)
