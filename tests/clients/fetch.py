"""Fetches every path listed on standard input with http.client over one connection, and prints the HTTP version, the
status, the SHA-256 of the content and the path of each.

    fetch.py HOST:PORT [CA.pem]
"""

import hashlib
import http.client
import ssl
import sys


def main() -> None:
    address, *authority = sys.argv[1:]
    if authority:
        context = ssl.create_default_context(cafile=authority[0])
        connection = http.client.HTTPSConnection(address, timeout=60, context=context)
    else:
        connection = http.client.HTTPConnection(address, timeout=60)
    for path in sys.stdin.read().splitlines():
        connection.request("GET", path)
        response = connection.getresponse()
        digest = hashlib.sha256(response.read()).hexdigest()
        print(f"HTTP/{response.version / 10}", response.status, digest, path)


main()
