"""A stand-in for the W&B service on this machine, which can answer, reject, or fall silent."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Service:
    """Answers as much of the protocol as a run needs to begin, log and end.

    Attributes:
        status: of every answer; 200 = as it should be, else an error.
        silent: take requests and answer none.
        n_rows: rows that it has of every run from before; 0 = it knows none.
        rows: of each run by id, those that it was sent, by their number.
        bodies: of all requests.
    """

    def __init__(self) -> None:
        self.status, self.silent, self.n_rows = 200, False, 0
        self.rows: dict[str, dict[int, dict[str, Any]]] = {}
        self.bodies: list[str] = []
        self._ended = threading.Event()
        service = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_: Any) -> None:
                pass

            def do_POST(self) -> None:
                size = int(self.headers.get("Content-Length") or 0)
                body = self.rfile.read(size).decode("utf-8", "replace")
                service.bodies.append(f"{self.path} {body}")
                if service.silent:
                    service._ended.wait()
                    return
                service.take(self.path, body)
                content = json.dumps(service.answer(body)).encode()
                self.send_response(service.status)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_PUT = do_POST  # noqa: N815

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def take(self, path: str, body: str) -> None:
        """Store the rows of a part of a run's stream."""
        if self.status == 200 and path.endswith("/file_stream"):
            part = json.loads(body).get("files", {}).get("wandb-history.jsonl")
            rows = self.rows.setdefault(path.split("/")[-2], {})
            for number, line in enumerate(part["content"] if part else ()):
                rows[part["offset"] + number] = json.loads(line)

    def answer(self, body: str) -> dict[str, Any]:
        """The answer to a request, by what it asks for."""
        if self.status != 200:
            return {"errors": [{"message": "over the quota, or not permitted"}]}
        if "RunResumeStatus" in body:
            run_id = json.loads(body)["variables"]["name"]
            return {"data": {"model": self._run(run_id) if self._n_rows(run_id) else None}}
        if "UpsertBucket" in body:
            run_id = json.loads(body)["variables"]["name"]
            place = {"id": "p", "name": "p", "entity": {"id": "e", "name": "e"}}
            n_rows = self._n_rows(run_id)
            known = {"id": "r", "name": run_id, "historyLineCount": n_rows, "project": place}
            return {"data": {"upsertBucket": {"bucket": known, "inserted": not n_rows}}}
        if "CreateRunFiles" in body:
            names = json.loads(body)["variables"]["files"]
            files = [{"name": name, "uploadUrl": f"{self.url}/{name}"} for name in names]
            made = {"runID": "r", "uploadHeaders": [], "files": files}
            return {"data": {"createRunFiles": made}}
        return {"data": {}}

    def _n_rows(self, run_id: str) -> int:
        return max(self.n_rows, *(number + 1 for number in self.rows.get(run_id, ())), 0)

    def _run(self, run_id: str) -> dict[str, Any]:
        n_rows = self._n_rows(run_id)
        row = json.dumps({"_step": n_rows - 1, "_runtime": 1})
        tails = {"historyTail": json.dumps([row]), "eventsTail": "[]"}
        counts = {"historyLineCount": n_rows, "eventsLineCount": 0, "logLineCount": 0}
        known = {"id": "r", "name": run_id, "summaryMetrics": "{}", "config": "{}", "tags": []}
        known["wandbConfig"] = '{"t": 1}'  # by which a run counts as begun
        entity = {"id": "e", "name": "e"}
        return {"id": "m", "name": "p", "entity": entity, "bucket": known | tails | counts}

    def close(self) -> None:
        """Reject every further connection."""
        self._ended.set()
        self._server.shutdown()
        self._server.server_close()
