#!/usr/bin/env python3
"""Checks a trace by the rules of Perfetto's importer of JSON traces (trace_processor's json importer, slice tracker and flow
tracker): what it would drop, count as an error or show wrongly, is named here.

    tests/cli/check_trace.py trace.json

Prints what the trace holds, or what is wrong with it, and then exits 1."""
import json
import sys
from collections import Counter, defaultdict
from decimal import Decimal

NANO = 1000


class Wrong(Exception):
    pass


def expect(condition, event, why):
    if not condition:
        raise Wrong(f"{why}: {json.dumps(event, default=str)[:300]}")


def number(x):
    return isinstance(x, (int, Decimal)) and not isinstance(x, bool) and (isinstance(x, int) or x.is_finite())


def check(text):
    """Returns {what: count}; raises Wrong."""
    try:
        trace = json.loads(text, parse_float=Decimal, parse_constant=lambda x: None)
    except ValueError as e:
        raise Wrong(f"no JSON: {e}")
    events = trace.get("traceEvents") if isinstance(trace, dict) else None
    if not isinstance(events, list):
        raise Wrong("no list traceEvents")
    threads, names, slices, flows, counters = {}, {}, defaultdict(list), defaultdict(dict), Counter()
    for e in events:
        expect(isinstance(e, dict) and isinstance(e.get("ph"), str) and e["ph"] in "MXCsf", e, "phase")
        for key in ("pid", "tid"):
            # 0 is the idle process, and numbers are 32 bits wide.
            expect(isinstance(e.get(key), int) and 0 < e[key] < 2 ** 32, e, key)
        # A name is given by tid alone, so a tid must not stand for threads of two processes.
        expect(threads.setdefault(e["tid"], e["pid"]) == e["pid"], e, "a tid in two processes")
        expect(isinstance(e.get("name"), str) and e["name"], e, "name")
        if e["ph"] == "M":
            args = e.get("args", {})
            if e["name"] in ("process_name", "thread_name"):
                expect(isinstance(args.get("name"), str) and args["name"], e, "a name in the arguments")
                names[e["name"], e["pid"] if e["name"] == "process_name" else e["tid"]] = args["name"]
            continue
        expect(number(e.get("ts")) and e["ts"] >= 0 and e["ts"] * NANO < 2 ** 63, e, "ts")
        expect(e["ts"] * NANO == int(e["ts"] * NANO), e, "ts is finer than a nanosecond")
        if e["ph"] == "X":
            expect(number(e.get("dur")) and e["dur"] >= 0, e, "dur")
        if e["ph"] == "C":
            expect(isinstance(e.get("args"), dict) and e["args"], e, "a counter's values")
            expect(all(number(v) for v in e["args"].values()), e, "a counter's values are numbers")
            counters[e["name"]] += 1
        if e["ph"] in "sf":
            expect(isinstance(e.get("id"), int) and e["id"] >= 0, e, "a flow's id")
    # The importer sorts by time; equal times stay in the order of the file.
    for e in sorted((e for e in events if e["ph"] in "Xsf"), key=lambda e: e["ts"]):
        stack = slices[e["tid"]]
        while stack and stack[-1][0] <= e["ts"]:
            stack.pop()
        if e["ph"] == "X":
            end = e["ts"] + e["dur"]
            expect(not stack or end <= stack[-1][0], e, "a slice ends after the one that it begins in")
            expect(("thread_name", e["tid"]) in names, e, "a slice on a track without a name")
            expect(("process_name", e["pid"]) in names, e, "a slice of a process without a name")
            stack.append((end, e))
        else:
            expect(stack, e, "an arrow's end that no slice encloses")
            expect(e["ph"] == "s" or e.get("bp") == "e", e, "an arrow that binds to the next slice")
            ends = flows[e.get("cat"), e["name"], e["id"]]
            expect(e["ph"] not in ends, e, "an arrow with two such ends")
            expect(e["ph"] == "s" or "s" in ends, e, "an arrow that ends before it begins")
            ends[e["ph"]] = e
    for ends in flows.values():
        expect(len(ends) == 2, next(iter(ends.values())), "an arrow with one end")
    return {"processes": len(set(threads.values())), "tracks": len({e["tid"] for e in events if e["ph"] == "X"}),
            "slices": sum(e["ph"] == "X" for e in events), "arrows": len(flows), "counters": dict(counters)}


if __name__ == "__main__":
    try:
        with open(sys.argv[1], "rb") as f:
            print(check(f.read().decode()))
    except Wrong as e:
        sys.exit(f"{sys.argv[1]}: {e}")
