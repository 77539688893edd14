"""
ClickHouse's own engine behind its server's HTTP protocol: `clickhouse_server DIRECTORY [PORT]`; it
prints its port.
"""

import gzip
import re
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, urlsplit

from chdb.session import Session

# names of query parameters that are not settings of ClickHouse
OWN = ("query", "database", "wait_end_of_query")
# settings of replicated tables, which this engine does not support
LEFT_OUT = ("insert_quorum", "insert_quorum_parallel", "select_sequential_consistency")


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        parameters = dict(parse_qsl(urlsplit(self.path).query))
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        settings = {name: value for name, value in parameters.items() if name not in (*OWN, *LEFT_OUT)}
        query = parameters.get("query", "")
        if settings:
            words = ", ".join(f"{name} = '{value}'" for name, value in settings.items())
            query = re.sub(r" FORMAT (\w+)$", rf" SETTINGS {words} FORMAT \1", query)
        if body:
            query = f"{query}\n{body.decode()}"
        try:
            with self.server.lock:
                answer, status = bytes(self.server.session.query(query, "TabSeparatedRaw").bytes()), 200
        except Exception as error:
            answer, status = str(error).encode(), 500
        self.send_response(status)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *words: object) -> None:
        pass


server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[2]) if sys.argv[2:] else 0), Handler)
server.lock = threading.Lock()
server.session = Session(sys.argv[1])
server.session.query("CREATE DATABASE IF NOT EXISTS costs")
server.session.query("USE costs")
print(server.server_port, flush=True)
server.serve_forever()
