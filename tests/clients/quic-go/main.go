// HTTP/3 with quic-go. The commands and the output are those of tests/e2e/http3/client.py:
//
//	quic-go get HOST:PORT PATH…           each response
//	quic-go head HOST:PORT PATH           the response
//	quic-go post HOST:PORT PATH BYTES [te]  content of this many bytes, perhaps with trailers
//	quic-go cancel HOST:PORT PATH OTHER   cancels PATH after its head, then requests OTHER
//	quic-go migrate HOST:PORT PATH        changes the client's port between requests
package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
)

type shown struct {
	Status   int               `json:"status"`
	Size     int64             `json:"size"`
	Digest   string            `json:"sha256"`
	Fields   map[string]string `json:"fields"`
	Trailers map[string]string `json:"trailers"`
	Sent     string            `json:"sent,omitempty"`
}

type session struct {
	connection *quic.Conn
	client     *http3.ClientConn
}

var (
	ctx context.Context
	// The only session of this process.
	opened session
)

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// open returns a transport on a separate port.
func open() *quic.Transport {
	socket, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	check(err)
	return &quic.Transport{Conn: socket}
}

func dial(address string) session {
	to, err := net.ResolveUDPAddr("udp", address)
	check(err)
	settings := &tls.Config{ServerName: "localhost", NextProtos: []string{http3.NextProtoH3}, InsecureSkipVerify: true}
	connection, err := open().Dial(ctx, to, settings, &quic.Config{})
	check(err)
	opened = session{connection, (&http3.Transport{}).NewClientConn(connection)}
	return opened
}

func request(method, path string, body io.Reader) *http.Request {
	request, err := http.NewRequestWithContext(ctx, method, "https://localhost"+path, body)
	check(err)
	return request
}

func flat(fields http.Header) map[string]string {
	flat := map[string]string{}
	for name, values := range fields {
		flat[strings.ToLower(name)] = strings.Join(values, ",")
	}
	return flat
}

func (s session) ask(request *http.Request) shown {
	response, err := s.client.RoundTrip(request)
	check(err)
	defer response.Body.Close()
	digest := sha256.New()
	size, err := io.Copy(digest, response.Body)
	check(err)
	return shown{
		Status: response.StatusCode, Size: size, Digest: hex.EncodeToString(digest.Sum(nil)),
		Fields: flat(response.Header), Trailers: flat(response.Trailer),
	}
}

func get(address string, paths []string) any {
	s, all := dial(address), []shown{}
	for _, path := range paths {
		all = append(all, s.ask(request("GET", path, nil)))
	}
	return all
}

func post(address string, arguments []string) any {
	count, err := strconv.Atoi(arguments[1])
	check(err)
	part := make([]byte, 1000)
	for index := range part {
		part[index] = byte(index % 251)
	}
	body := bytes.Repeat(part, count/1000)
	request := request("POST", arguments[0], bytes.NewReader(body))
	if len(arguments) > 2 {
		request.ContentLength = -1
		request.Trailer = http.Header{"X-Checksum": {"7"}}
	}
	told, digest := dial(address).ask(request), sha256.Sum256(body)
	told.Sent = hex.EncodeToString(digest[:])
	return told
}

// cancel reports how much of the response had arrived when the client cancelled it.
func cancel(address string, paths []string) any {
	s := dial(address)
	response, err := s.client.RoundTrip(request("GET", paths[0], nil))
	check(err)
	size, err := response.Body.Read(make([]byte, 1024))
	check(err)
	check(response.Body.Close())
	return map[string]any{"size": size, "again": s.ask(request("GET", paths[1], nil)).Status}
}

func migrate(address string, paths []string) any {
	s := dial(address)
	ports, all := []string{s.connection.LocalAddr().String()}, []shown{s.ask(request("GET", paths[0], nil))}
	for range 3 {
		transport := open()
		path, err := s.connection.AddPath(transport)
		check(err)
		check(path.Probe(ctx))
		check(path.Switch())
		ports = append(ports, transport.Conn.LocalAddr().String())
		all = append(all, s.ask(request("GET", paths[0], nil)))
	}
	return map[string]any{"ports": ports, "responses": all, "closed": s.connection.Context().Err() != nil}
}

func main() {
	log.SetFlags(0)
	var stop context.CancelFunc
	ctx, stop = context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	command, address, arguments := os.Args[1], os.Args[2], os.Args[3:]
	var told any
	switch command {
	case "get":
		told = get(address, arguments)
	case "head":
		told = dial(address).ask(request("HEAD", arguments[0], nil))
	case "post":
		told = post(address, arguments)
	case "cancel":
		told = cancel(address, arguments)
	case "migrate":
		told = migrate(address, arguments)
	default:
		log.Fatalf("unknown command %q", command)
	}
	check(opened.connection.CloseWithError(quic.ApplicationErrorCode(http3.ErrCodeNoError), ""))
	check(json.NewEncoder(os.Stdout).Encode(told))
}
