"""DataParallel: the same bits on any number of ranks, exact means, and what it refuses."""
import os
import subprocess
import sys

import pytest
import torch
from conftest import run_ranks


@pytest.mark.parametrize(
    "model, slots, worlds", [("transformer", 4, (1, 2, 3, 4)), ("resnet", 6, (1, 2, 3, 4)), ("transformer", 3, (1, 2))]
)
def test_the_state_does_not_depend_on_the_number_of_ranks(tmp_path, model, slots, worlds):
    states = []
    for ranks in worlds:
        out = tmp_path / f"{ranks}.pt"
        run_ranks(ranks, "same_bits.py", out, model, slots, 20).ok()
        states.append(torch.load(out))
    for ranks, state in zip(worlds, states):
        different = [name for name in state if state[name].numpy().tobytes() != states[0][name].numpy().tobytes()]
        assert not different, f"{ranks} ranks and 1: {different}"


def python(code):
    return subprocess.run(
        [sys.executable, "-c", "import torch, lockstep_torch\nfrom torch import nn\n" + code],
        capture_output=True,
        text=True,
        timeout=100,
        env={k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE")},
    )


def test_the_mean_is_exact_and_gradients_are_those_of_one_batch():
    done = python(
        """
torch.manual_seed(0)
plain = nn.Linear(5, 3)
model = nn.Linear(5, 3); model.load_state_dict(plain.state_dict())
x, y = torch.randn(12, 5), torch.randint(0, 3, (12,))
nn.functional.cross_entropy(plain(x), y).backward()
parallel = lockstep_torch.DataParallel(model, slots=4)
first = 0
for n in (1, 5, 2, 4):   # micro-batches of different sizes
    rows = slice(first, first + n); first += n
    last = parallel.backward(nn.functional.cross_entropy(parallel(x[rows]), y[rows]), weight=n)
assert last and parallel.weight == 12
torch.testing.assert_close(model.weight.grad, plain.weight.grad); torch.testing.assert_close(model.bias.grad, plain.bias.grad)
# A step in which some micro-batches have no data.
for n in (0, 12, 0, 0):
    loss = nn.functional.cross_entropy(parallel(x), y) if n else None
    last = parallel.backward(loss, weight=n) if n else parallel.backward(None)
torch.testing.assert_close(model.weight.grad, plain.weight.grad)
# Sums instead of means.
summed = lockstep_torch.DataParallel(model, slots=1, loss_is="sum")
summed.backward(nn.functional.cross_entropy(summed(x), y, reduction="sum"), weight=12)
torch.testing.assert_close(model.weight.grad, plain.weight.grad)
print("done")
"""
    )
    assert done.stdout == "done\n", done.stdout + done.stderr


def test_unused_parameters_have_no_gradient():
    done = python(
        """
class M(nn.Module):
    def __init__(self):
        super().__init__(); self.used, self.unused = nn.Linear(2, 2), nn.Linear(2, 2)
    def forward(self, x): return self.used(x)
m = M(); p = lockstep_torch.DataParallel(m, slots=1); p.backward(p(torch.ones(1, 2)).sum())
assert m.unused.weight.grad is None and m.used.weight.grad is not None; print("done")
"""
    )
    assert done.stdout == "done\n", done.stdout + done.stderr


def test_checkpoints_of_a_layer_that_is_used_twice():
    done = python(
        """
from torch.utils.checkpoint import checkpoint
class M(nn.Module):
    def __init__(self, again):
        super().__init__(); self.a, self.b, self.again = nn.Linear(3, 3), nn.Linear(3, 3), again
    def forward(self, x):
        x = self.a(x)
        for _ in range(2): x = checkpoint(self.b, x, use_reentrant=True)  # two backwards within the backward
        return self.b(x) if self.again else x
torch.manual_seed(0)
m, x = M(False), torch.randn(4, 3)
m(x).square().mean().backward()
want = [p.grad for p in m.parameters()]
for p in m.parameters(): p.grad = None
d = lockstep_torch.DataParallel(m, slots=1)
assert d.backward(d(x).square().mean())
assert all(torch.equal(p.grad, w) for p, w in zip(m.parameters(), want))
m = M(True); d = lockstep_torch.DataParallel(m, slots=1)
try: d.backward(d(x).square().mean())
except RuntimeError as e: assert "b.bias got another gradient" in str(e) or "b.weight got another gradient" in str(e), e
else: raise AssertionError("its gradient was not complete")
print("done")
"""
    )
    assert done.stdout == "done\n", done.stdout + done.stderr


def test_what_is_refused():
    done = python(
        """
def refused(words, f):
    try: f()
    except (ValueError, RuntimeError) as e: assert words in str(e), e
    else: raise AssertionError(words)
D = lockstep_torch.DataParallel
refused("must be float32", lambda: D(nn.Linear(2, 2).double()))
refused("no parameter", lambda: D(nn.ReLU()))
refused("0 slots", lambda: D(nn.Linear(2, 2), slots=0))
refused("use \\"mean\\" or \\"sum\\"", lambda: D(nn.Linear(2, 2), loss_is="total"))
p = D(nn.Linear(2, 2), slots=1)
refused("weight is 0", lambda: p.backward(p(torch.ones(1, 2)).sum(), weight=0))
refused("weight is nan", lambda: p.backward(p(torch.ones(1, 2)).sum(), weight=float("nan")))
assert p.backward(p(torch.ones(1, 2)).sum(), weight=2)
m = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)); m[0].requires_grad_(False); p = D(m)
assert p.backward(p(torch.ones(1, 2)).sum())
m[0].requires_grad_(True)  # ranks would go apart
refused("0.weight requires a gradient, but did not", lambda: p.backward(p(torch.ones(1, 2)).sum())); print("done")
"""
    )
    assert done.stdout == "done\n", done.stdout + done.stderr
