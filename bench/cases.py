"""Shapes of models that bench/train, train_ranks and lora measure, as commands of lockstep and of torch; and the memory of a job."""
import os
import pathlib
import random
import struct
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
CASES = {"a": dict(layers=6, width=384, heads=6, vocab=50257, batch=4, seq=256),
         "b": dict(layers=12, width=768, heads=12, vocab=50257, batch=1, seq=512),
         "B": dict(layers=12, width=768, heads=12, vocab=50257, batch=2, seq=512),
         "c": dict(layers=6, width=384, heads=6, vocab=256, batch=16, seq=256),
         "d": dict(layers=8, width=512, heads=8, vocab=50257, batch=1, seq=1024),
         "e": dict(layers=6, width=384, heads=6, vocab=50257, batch=1, seq=4096),
         "s": dict(model="llama", layers=30, width=576, heads=9, kv_heads=3, inner=1536, vocab=49152, batch=1, seq=512),
         "t": dict(model="bert", layers=12, width=768, heads=12, inner=3072, vocab=30522, batch=8, seq=128),
         "r": dict(images="resnet20", batch=128, size=32), "i": dict(images="resnet18", batch=16, size=224)}
SHAPES = """(a) 6 layers x 384, vocabulary 50257, batch 4 x 256; (b) GPT-2 124M, batch 1 x 512; (B) the same, batch 2 x 512; (c) 6 x 384, vocabulary 256,
batch 16 x 256; (d) 8 x 512, vocabulary 50257, batch 1 x 1024; (e) 6 x 384, vocabulary 50257, batch 1 x 4096; (s) the Llama SmolLM2-135M, batch 1 x 512;
(t) BERT-base with a classifier of pairs of texts, batch 8 x 128; (r) ResNet-20, 128 images of 32 x 32; (i) resnet18, 16 images of 224 x 224"""


def samples(case):
    """Tokens or images of a rank's batch."""
    return case["batch"] * case.get("seq", 1)


def unit(case):
    return "img/s" if "images" in case else "t/s"


def token_file(vocab, folder):
    data = folder / f"{vocab}.bin"
    if not data.exists():
        random.seed(0)
        tokens = [random.randrange(vocab) for _ in range(200000)]
        data.write_bytes(struct.pack(f"<{len(tokens)}H", *tokens))
    return data


def pairs(case, folder):
    """Pairs of texts of random words that fill the sequence, with labels, and the vocabulary of the words."""
    data, tokenizer = folder / "pairs.tsv", folder / "words"
    if data.exists():
        return data, tokenizer
    tokenizer.mkdir()
    random.seed(0)
    words = [f"w{i}" for i in range(case["vocab"] - 5)]
    (tokenizer / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]) + "\n")
    text = ["\t".join((str(i % 2), " ".join(random.choices(words, k=case["seq"])), " ".join(random.choices(words, k=case["seq"])))) for i in range(200)]
    data.write_text("\n".join(["label\tsentence1\tsentence2", *text]) + "\n")
    return data, tokenizer


def lockstep_command(build, case, folder, run_dir, steps, threads):
    """`lockstep train` of a case, with data in `folder`."""
    common = ["--steps", steps, "--threads", threads, "--batch-size", case["batch"], "--run-dir", run_dir, "--no-checkpoint", "--quiet"]
    if "images" in case:
        return [build / "bin/lockstep", "train", "--task", "images", "--model", case["images"], "--image-size", case["size"], "--optimizer", "sgd", "--clip", 0,
                *common]
    if case.get("model") == "bert":
        data, tokenizer = pairs(case, folder)
        common += ["--task", "classify", "--tokenizer", tokenizer]
    else:
        data = token_file(case["vocab"], folder)
    common += [x for k in ("model", "kv_heads", "inner") if k in case for x in ("--" + k.replace("_", "-"), case[k])]
    return [build / "bin/lockstep", "train", "--data", data, "--layers", case["layers"], "--width", case["width"], "--heads", case["heads"], "--vocab-size",
            case["vocab"], "--seq-len", case["seq"], *common]


def torch_command(python, case, steps, threads, *more):
    if "images" in case:
        return [python, HERE / "peers/torch_images.py", "--model", case["images"], "--size", case["size"], "--batch", case["batch"], "--steps", steps, "--threads",
                threads, *more]
    return [python, HERE / "peers/torch_gpt.py", "--steps", steps, "--threads", threads, *(f"--{k.replace('_', '-')}={v}" for k, v in case.items()), *more]


def torch_ways(case, compiled):
    """Options of torch among which the fastest is the peer."""
    layouts = [[], ["--channels-last"]] if "images" in case else [[]]
    return [layout + (["--compile"] if compiled else []) for layout in layouts]


def rate(result):
    return result.get("tokens_per_s") or result["images_per_s"]


def family(pid):
    """A process and all that it started."""
    found = [pid]
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            for child in open(f"/proc/{pid}/task/{thread}/children").read().split():
                found += family(int(child))
    except OSError:
        pass
    return found


def pss_mb(pids):
    total = 0
    for pid in pids:
        try:
            total += sum(int(line.split()[1]) for line in open(f"/proc/{pid}/smaps_rollup") if line.startswith("Pss:"))
        except OSError:
            pass
    return total / 1024


class Watch(threading.Thread):
    """The most memory that a job's processes have: proportional set size, so that shared pages count once. While `settled`: what a step needs comes and goes."""

    def __init__(self, pids, settled=False, every=0.15):
        super().__init__(daemon=True)
        self.pids, self.most, self.settled, self.every, self.over = pids, 0, settled, every, False
        self.start()

    def run(self):
        while not self.over:
            if self.settled:
                self.most = max(self.most, pss_mb(self.pids()))
            time.sleep(self.every)

    def end(self):
        self.over = True
        self.join()
        return self.most
