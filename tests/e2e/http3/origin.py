"""An HTTP/1.1 origin that echoes request content. Prints its port, and a line for each request for /slow."""

import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Echo(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def chunks(self):
        """Reads the content and the trailers of a chunked request."""
        parts = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        trailers = []
        while line := self.rfile.readline().strip():
            trailers.append(line.decode())
        return b"".join(parts), trailers

    def do_POST(self):
        if self.headers.get("transfer-encoding"):
            body, trailers = self.chunks()
        else:
            body, trailers = self.rfile.read(int(self.headers.get("content-length", 0))), []
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.send_header("x-trailers", ",".join(trailers))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        if self.path == "/hints":
            self.wfile.write(b"HTTP/1.1 103 Early Hints\r\nlink: </a.css>; rel=preload\r\n\r\n")
        if self.path == "/slow":
            print("slow", flush=True)
            time.sleep(2)
        if self.path == "/hang":
            time.sleep(60)
        if self.path == "/kept":
            self.send_response(200)
            self.send_header("cache-control", "max-age=60")
            self.send_header("content-length", "4")
            self.end_headers()
            self.wfile.write(b"kept")
            return
        self.send_response(200)
        self.send_header("cache-control", "no-store")
        self.send_header("trailer", "x-sum")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for part in (b"one", b"two"):
            self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
        self.wfile.write(b"0\r\nx-sum: 6\r\n\r\n")

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Echo)
print(server.server_address[1], flush=True)
server.serve_forever()
