"""A stand-in for the W&B service on this machine, which answers, refuses or falls silent."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Service:
    """Answers as much of the protocol as a run needs to begin, log and end.

    Attributes:
        silent: take requests and answer none.
        refuses: answer each with an error.
        bodies: of all requests.
    """

    def __init__(self) -> None:
        self.silent = self.refuses = False
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
                content = json.dumps(service.answer(body)).encode()
                self.send_response(403 if service.refuses else 200)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_PUT = do_POST  # noqa: N815

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def answer(self, body: str) -> dict[str, Any]:
        """The answer to a request, by what it asks for."""
        if self.refuses:
            return {"errors": [{"message": "over the quota, or not permitted"}]}
        if "RunResumeStatus" in body:
            return {"data": {"model": None}}  # it knows no run from before
        if "UpsertBucket" in body:
            run_id = json.loads(body)["variables"]["name"]
            place = {"id": "p", "name": "p", "entity": {"id": "e", "name": "e"}}
            known = {"id": "r", "name": run_id, "historyLineCount": 0, "project": place}
            return {"data": {"upsertBucket": {"bucket": known, "inserted": True}}}
        if "CreateRunFiles" in body:
            names = json.loads(body)["variables"]["files"]
            files = [{"name": name, "uploadUrl": f"{self.url}/{name}"} for name in names]
            made = {"runID": "r", "uploadHeaders": [], "files": files}
            return {"data": {"createRunFiles": made}}
        return {"data": {}}

    def close(self) -> None:
        """Reject every further connection."""
        self._ended.set()
        self._server.shutdown()
        self._server.server_close()
