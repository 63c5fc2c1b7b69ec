"""HTTP/3 with libcurl and ngtcp2. The commands and the output are those of tests/e2e/http3/client.py: `COMMAND
HOST:PORT ARGUMENTS`. libcurl has no API to send trailers in an HTTP/3 request or to change its port."""

import hashlib
import io
import json
import sys

import pycurl

BASE = f"https://{sys.argv[2]}"


class Session:
    """One connection. Every response must have come over HTTP/3."""

    def __init__(self):
        self.curl = pycurl.Curl()

    def ask(self, path, **options):
        size, digest, lines = 0, hashlib.sha256(), []
        limit = options.pop("limit", None)

        def take(data):
            nonlocal size
            size += len(data)
            digest.update(data)
            # A return value other than the length of the data cancels the transfer.
            return 0 if limit is not None and size >= limit else len(data)

        curl = self.curl
        curl.reset()
        options = dict(URL=BASE + path, HTTP_VERSION=pycurl.CURL_HTTP_VERSION_3ONLY, SSL_VERIFYPEER=0, SSL_VERIFYHOST=0, TIMEOUT=60) | options
        for name, value in (options | {"WRITEFUNCTION": take, "HEADERFUNCTION": lambda line: lines.append(line.decode().strip())}).items():
            curl.setopt(getattr(pycurl, name), value)
        try:
            curl.perform()
        except pycurl.error as error:
            if limit is None or error.args[0] != pycurl.E_WRITE_ERROR:
                raise
        end = lines.index("")
        assert lines[0].startswith("HTTP/3 "), lines
        fields = [{name: value.strip() for name, _, value in (line.partition(":") for line in part if line)} for part in (lines[1:end], lines[end:])]
        return {"status": curl.getinfo(curl.RESPONSE_CODE), "size": size, "sha256": digest.hexdigest(), "fields": fields[0], "trailers": fields[1]}


def main():
    command, arguments, session = sys.argv[1], sys.argv[3:], Session()
    if command == "get":
        return [session.ask(path) for path in arguments]
    if command == "head":
        return session.ask(arguments[0], NOBODY=1)
    if command == "post":
        body = bytes(index % 251 for index in range(1000)) * (int(arguments[1]) // 1000)
        told = session.ask(arguments[0], POST=1, POSTFIELDSIZE_LARGE=len(body), READFUNCTION=io.BytesIO(body).read, HTTPHEADER=["expect:"])
        return dict(told, sent=hashlib.sha256(body).hexdigest())
    if command == "cancel":
        cut, again = session.ask(arguments[0], limit=1), session.ask(arguments[1])
        return {"size": cut["size"], "again": again["status"]}
    raise SystemExit(f"unknown command {command}")


print(json.dumps(main()))
