"""Ranks on several machines without MPI: hosts are network namespaces with names of their own (tests/cluster)."""
import os
import subprocess
import sys

import pytest
from conftest import HERE, run_ranks

CLUSTER = os.path.join(os.path.dirname(HERE), "cluster")


def run_hosts(folder, hosts, *arguments):
    """Runs programs/machines.py: as many ranks on each host as `hosts` says. Returns what each rank prints."""
    why = subprocess.run([CLUSTER, "check"], capture_output=True, text=True)
    if why.returncode:
        pytest.skip(why.stdout.strip())
    program = os.path.join(HERE, "programs", "machines.py")
    size, rank, lines = sum(hosts), 0, []
    for host, count in enumerate(hosts):
        for local in range(count):
            lines.append(
                f"RANK={rank} LOCAL_RANK={local} {CLUSTER} on node{host} {sys.executable} {program} {' '.join(arguments)} > out.{rank} 2> err.{rank} &"
            )
            rank += 1
    variables = {
        **os.environ,
        "MASTER_ADDR": "10.77.0.1",
        "MASTER_PORT": "29511",
        "WORLD_SIZE": str(size),
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "eth0",
    }
    command = [CLUSTER, "run", str(len(hosts)), "sh", "-c", "\n".join(lines) + "\nwait"]
    done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, timeout=150)
    outs = [(folder / f"out.{r}").read_text() for r in range(size)]
    assert all(outs), done.stderr + "".join((folder / f"err.{r}").read_text() for r in range(size))
    return outs


@pytest.mark.parametrize("hosts", [(1, 1), (2, 1)])
def test_sums_have_the_bits_of_one_machine(tmp_path, hosts):
    outs = run_hosts(tmp_path, hosts)
    one = run_ranks(sum(hosts), "machines.py").ok().out
    assert all("1 machines" in out for out in one)
    bits = {out.split()[-1] for out in one}
    assert len(bits) == 1
    for out in outs:
        assert out.startswith(f"{len(hosts)} machines, bits {bits.copy().pop()}"), (outs, one)


def test_a_death_on_another_machine_is_an_error(tmp_path):
    outs = run_hosts(tmp_path, (1, 1), "kill")
    assert "told:" in outs[0] and "rank 1" in outs[0], outs

