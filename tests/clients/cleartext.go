//go:build go1.24

package main

import "net/http"

// speakOnlyCleartextHTTP2 limits transport to HTTP/2 with prior knowledge, which net/http supports since Go 1.24.
func speakOnlyCleartextHTTP2(transport *http.Transport) {
	transport.Protocols = new(http.Protocols)
	transport.Protocols.SetUnencryptedHTTP2(true)
}
