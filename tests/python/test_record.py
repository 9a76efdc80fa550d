"""The recorder on unchanged loops with DDP over Gloo: what is recorded, whom the report names, and broken synchronization."""
import json
import os
import subprocess
import sys

import pytest
import torch
from conftest import lockstep, run_ranks


def states(folder):
    return [torch.load(folder / f"state-{r}.pt") for r in range(2)]


def equal(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


def test_a_loop_is_recorded(run):
    run("eval")
    report = run.report()
    assert report["ranks"] == 2
    assert len({b["step"] for b in report["buckets"]}) >= 15
    assert [s["step"] for s in report["steps"]] == list(range(1, 17))  # the evaluation at the end is no step
    for rank in report["by_rank"]:
        assert rank["transport"] == "gloo" and rank["closed"] and rank["lost_events"] == 0, rank
        assert all(rank["phases"][p] > 0 for p in ("data", "forward", "backward", "update", "communication")), rank
        assert rank["metadata"]["torch"] == 1  # findings then name settings of torch
        assert rank["metadata"]["parameters"] == 3 * 65 * 64 + 650, rank
    names = {e.get("name") for e in json.loads(lockstep("trace", "-o", "-", run.folder))["traceEvents"]}
    assert {"forward", "backward", "update"} <= names, sorted(map(str, names))[:50]


def test_recording_changes_no_bit(run, tmp_path):
    run("none")
    recorded = states(run.folder)
    run.folder = tmp_path / "plain"
    run("plain")
    assert equal(recorded[0], states(run.folder)[0])
    assert equal(recorded[0], recorded[1])
    assert not (run.folder / "events").exists()


@pytest.mark.parametrize("phase", ["data", "forward", "backward", "update"])
def test_a_late_rank_is_named(run, phase):
    run(phase)
    findings = run.report()["findings"]
    named = [f for f in findings if f["rank"] == 1 and (f["phase"] == phase or f"in {phase}" in f["what"])]
    assert named, f"rank 1 is slow in {phase}: {json.dumps(findings, indent=1)}"
    matrix = run.report()["wait_matrix"]
    assert matrix[0][1] > 10 * matrix[1][0], f"rank 0 waits for rank 1: {matrix}"


def test_sizes_are_those_of_what_a_rank_sends(tmp_path):
    """FSDP2 on two ranks: of a layer's weights, a rank gathers its half, and reduces all before they are scattered."""
    run_ranks(2, "fsdp.py", BACKEND="gloo", LOCKSTEP_RECORD=str(tmp_path)).ok()
    rows = {c["call"]: c["bytes"] / c["count"] for c in json.loads(lockstep("report", "--json", tmp_path))["communication"]}
    mean = 4 * (33 * 4 + 17 * 32) / 2  # of the two layers
    assert (rows["reduce_scatter"], rows["allgather"]) == (mean, mean / 2), rows


def test_nothing_has_to_be_imported(run):
    run("autoload", LOCKSTEP_RECORD=run.folder)
    assert len(run.report()["steps"]) == 16


def test_workers_of_the_loader_do_not_record(run):
    run("workers")
    assert len(run.report()["steps"]) == 16
    assert sorted(os.listdir(run.folder / "events")) == ["rank-0.bin", "rank-1.bin"]


def test_close_takes_all_hooks_out(run):
    run("restored")


@pytest.mark.parametrize(
    "case, words",
    [
        ("no_sync", "under no_sync()"),
        ("module", "not its .module"),
        ("unwrapped", "nothing reduces them"),
        ("drift", "1 of 8 parameters differ between rank 0 and rank 1, the first is 1.fc.weight"),
    ],
)
def test_broken_synchronization_is_found(run, case, words):
    run(case)
    warnings = run.warnings()
    assert warnings and all(words in w for w in warnings if "differ between" not in w or case == "drift"), warnings
    assert "SynchronizationWarning" in run.outcome.err[0], run.outcome.err[0]


@pytest.mark.parametrize("case", [["none"], ["accumulate"], ["unwrapped", "reduced"], ["late record"]])
def test_sound_loops_raise_no_warning(run, case):
    run(*case)
    assert run.warnings() == []


def test_gradients_of_data_parallel_are_reduced(run):
    run("data_parallel", BACKEND="lockstep")
    assert run.warnings() == []
    assert len(run.report()["steps"]) == 16


@pytest.mark.parametrize("backend", ["gloo", "lockstep"])
@pytest.mark.parametrize("case", ["compiled", "compiled in place"])
def test_compiled_models(run, case, backend):
    run(case, BACKEND=backend)
    report = run.report()
    assert len(report["steps"]) == 16 and all(rank["phases"]["forward"] > 0 for rank in report["by_rank"])
    assert run.warnings() == []


@pytest.mark.parametrize("compile", ["m = torch.compile(m, fullgraph=True, backend='eager')", "m.compile(fullgraph=True, backend='eager')"])
def test_the_recorder_is_not_compiled(tmp_path, compile):
    done = python(
        f"""
import lockstep_torch, torch
with lockstep_torch.record({str(tmp_path)!r}):
    m = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU()); o = torch.optim.SGD(m.parameters())
    {compile}
    for i in range(6):
        m(torch.ones(1, 2)).sum().backward(); o.step()
"""
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(lockstep("report", "--json", tmp_path))
    assert len(report["steps"]) == 6 and report["by_rank"][0]["phases"]["forward"] > 0, report["steps"]


def python(code, **variables):
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=100, env={**os.environ, **variables}
    )


def test_what_cannot_be_recorded(tmp_path):
    (tmp_path / "last").symlink_to("other")
    done = python(
        f"""
import lockstep_torch
try: lockstep_torch.record({str(tmp_path / "last")!r})
except ValueError as e: print(e)
with lockstep_torch.record({str(tmp_path / "one")!r}):
    try: lockstep_torch.record({str(tmp_path / "two")!r})
    except RuntimeError as e: print(e)
try: lockstep_torch.phase("lunch").__enter__()
except ValueError as e: print(e)
"""
    )
    for words in "is a link to another run (other)", "recorded already", "unknown phase 'lunch'":
        assert words in done.stdout, done.stdout + done.stderr


def test_a_folder_that_cannot_be_written_ends_nothing(tmp_path):
    (tmp_path / "file").write_text("")
    done = python(
        f"""
import lockstep_torch, torch
lockstep_torch.record({str(tmp_path / "file" / "run")!r})
m = torch.nn.Linear(2, 2); o = torch.optim.SGD(m.parameters()); m(torch.ones(1, 2)).sum().backward(); o.step(); print("done")
"""
    )
    assert done.stdout == "done\n" and "nothing is recorded" in done.stderr, done.stdout + done.stderr


def test_a_loop_of_one_process(tmp_path):
    done = python(
        f"""
import lockstep_torch, torch
with lockstep_torch.record({str(tmp_path)!r}):
    m = torch.nn.Linear(2, 2); o = torch.optim.SGD(m.parameters())
    for i in range(6):
        m(torch.ones(1, 2)).sum().backward(); o.step()
        with lockstep_torch.phase("checkpoint"): sum(range(100000))
"""
    )
    assert done.returncode == 0, done.stderr
    text = lockstep("report", tmp_path)
    assert "1 rank" in text and "checkpoint" in text, text


def test_steps_are_recorded_after_exceptions_that_the_loop_handles(tmp_path):
    done = python(
        f"""
import lockstep_torch, torch
class Optimizer(torch.optim.SGD):
    def step(self, closure=None):
        if i == 3: raise ArithmeticError
        return super().step(closure)
class Model(torch.nn.Linear):
    def forward(self, x):
        if i == 5: raise ValueError
        return super().forward(x)
with lockstep_torch.record({str(tmp_path)!r}):
    m = Model(2, 2); o = Optimizer(m.parameters())
    for i in range(12):
        try: m(torch.ones(1, 2)).sum().backward(); o.step()
        except (ArithmeticError, ValueError): pass
"""
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(lockstep("report", "--json", tmp_path))
    assert len(report["steps"]) == 10, report["steps"]  # 12, of which two did not end


def test_after_a_record_everything_is_as_before(tmp_path):
    done = python(
        f"""
import lockstep_torch, torch, torch.distributed as dist
dist.init_process_group("gloo", init_method="file://{tmp_path}/store", rank=0, world_size=1)
methods = lambda: [vars(c).get(n) for c in (dist.ProcessGroup, dist.Work) for n in sorted(vars(c))]
before = methods()
for i in range(2):
    with lockstep_torch.record("{tmp_path}/%d" % i):
        dist.all_reduce(torch.ones(3))
assert all(a is b for a, b in zip(before, methods()))
dist.all_reduce(torch.ones(3)); dist.barrier(); print("done")
"""
    )
    assert done.stdout == "done\n", done.stderr


def test_a_broken_record_does_not_break_the_import_of_torch(tmp_path):
    (tmp_path / "last").symlink_to("other")
    done = python("import torch; print(torch.__name__)", LOCKSTEP_RECORD=str(tmp_path / "last"))
    assert done.stdout == "torch\n" and "is a link" in done.stderr, done.stdout + done.stderr


def test_the_example_runs(tmp_path):
    example = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../python/examples/ddp.py")
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", example],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0 and "epoch 1: loss" in done.stdout, done.stdout + done.stderr
    assert "2 ranks on 1 node (gloo)" in lockstep("report", tmp_path / "runs" / "torch")
    assert "SynchronizationWarning" not in done.stderr
