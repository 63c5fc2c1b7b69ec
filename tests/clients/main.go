// Fetches every path listed on standard input over one version of HTTP, and prints the version used, the status, the
// SHA-256 of the content and the path of each.
//
//	fetch BASE http1|http2|h2c [CA.pem]
//
// It exits with code 3 if this Go is too old for the requested version of HTTP.
package main

import (
	"bufio"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"sync"
)

// connections is the number of paths that are fetched at once.
const connections = 8

func transport(mode string, roots *x509.CertPool) *http.Transport {
	transport := &http.Transport{
		TLSClientConfig:     &tls.Config{RootCAs: roots},
		MaxIdleConnsPerHost: connections,
		DisableCompression:  true,
	}
	switch mode {
	case "http1":
		// An empty map disables HTTP/2.
		transport.TLSNextProto = map[string]func(string, *tls.Conn) http.RoundTripper{}
	case "http2":
		transport.ForceAttemptHTTP2 = true
	case "h2c":
		speakOnlyCleartextHTTP2(transport)
	default:
		log.Fatalf("unknown mode %q", mode)
	}
	return transport
}

func fetch(client *http.Client, base, path string) (string, error) {
	response, err := client.Get(base + path)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	hash := sha256.New()
	if _, err := io.Copy(hash, response.Body); err != nil {
		return "", err
	}
	return fmt.Sprintf("%s %d %x %s", response.Proto, response.StatusCode, hash.Sum(nil), path), nil
}

func main() {
	log.SetFlags(0)
	if len(os.Args) < 3 {
		log.Fatal("usage: fetch BASE http1|http2|h2c [CA.pem]")
	}
	var roots *x509.CertPool
	if len(os.Args) > 3 {
		pem, err := os.ReadFile(os.Args[3])
		if err != nil {
			log.Fatal(err)
		}
		roots = x509.NewCertPool()
		roots.AppendCertsFromPEM(pem)
	}
	client := &http.Client{Transport: transport(os.Args[2], roots)}
	paths := make(chan string)
	var workers sync.WaitGroup
	var printing sync.Mutex
	for count := 0; count < connections; count++ {
		workers.Add(1)
		go func() {
			defer workers.Done()
			for path := range paths {
				line, err := fetch(client, os.Args[1], path)
				if err != nil {
					log.Fatalf("%s: %v", path, err)
				}
				printing.Lock()
				fmt.Println(line)
				printing.Unlock()
			}
		}()
	}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		paths <- lines.Text()
	}
	close(paths)
	workers.Wait()
}
