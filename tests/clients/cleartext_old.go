//go:build !go1.24

package main

import (
	"log"
	"net/http"
	"os"
)

func speakOnlyCleartextHTTP2(*http.Transport) {
	log.Print("HTTP/2 without TLS needs Go 1.24")
	os.Exit(3)
}
