// Fetches every URL whose path standard input names, over one version of HTTP, and prints for each the version used,
// the status, the SHA-256 of the content and the path.
//
//	fetch BASE http1|http2|h2c [CA.pem]
package main

import (
	"bufio"
	"context"
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

func transport(mode string, roots *x509.CertPool) *http.Transport {
	protocols := new(http.Protocols)
	switch mode {
	case "http1":
		protocols.SetHTTP1(true)
	case "http2":
		protocols.SetHTTP2(true)
	case "h2c":
		protocols.SetUnencryptedHTTP2(true)
	default:
		log.Fatalf("unknown mode %q", mode)
	}
	return &http.Transport{
		Protocols:           protocols,
		TLSClientConfig:     &tls.Config{RootCAs: roots},
		MaxIdleConnsPerHost: 8,
		DisableCompression:  true,
	}
}

func fetch(client *http.Client, base, path string) (string, error) {
	request, err := http.NewRequestWithContext(context.Background(), http.MethodGet, base+path, nil)
	if err != nil {
		return "", err
	}
	response, err := client.Do(request)
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
	for range 8 {
		workers.Go(func() {
			for path := range paths {
				line, err := fetch(client, os.Args[1], path)
				if err != nil {
					log.Fatalf("%s: %v", path, err)
				}
				printing.Lock()
				fmt.Println(line)
				printing.Unlock()
			}
		})
	}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		paths <- lines.Text()
	}
	close(paths)
	workers.Wait()
}
