package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"time"
)

// netMain is the command "net" of the scripts, an HTTP server and client, and a client for TCP without a proxy.
//
//	net serve <address> <file>   listens, then writes its port to the file; a request for "/quit" stops it
//	net get <url>                prints the response; uses the proxy in http_proxy, if that is set
//	net echo <address> <file>    listens, then writes its port to the file; sends back what it received once that has ended
//	net send <address> <n> <m>   makes m connections at once, sends n bytes on each, ends them, and reads them back
func netMain() {
	if err := netRun(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "net:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func netRun(args []string) error {
	switch {
	case len(args) == 3 && args[0] == "serve":
		return netServe(args[1], args[2])
	case len(args) == 2 && args[0] == "get":
		return netGet(args[1])
	case len(args) == 3 && args[0] == "echo":
		return netEcho(args[1], args[2])
	case len(args) == 4 && args[0] == "send":
		return netSend(args[1], args[2], args[3])
	}
	return errors.New("usage: net serve <address> <file> | net get <url> | net echo <address> <file> | net send <address> <n> <m>")
}

// listenAndTell listens and writes the port to a file, which appears with the port in it.
func listenAndTell(address, file string) (net.Listener, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err == nil {
		err = os.WriteFile(file+".new", []byte(port+"\n"), 0o644)
	}
	if err == nil {
		err = os.Rename(file+".new", file)
	}
	return l, err
}

func netEcho(address, file string) error {
	l, err := listenAndTell(address, file)
	if err != nil {
		return err
	}
	for {
		conn, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer conn.Close()
			data, _ := io.ReadAll(conn)
			_, _ = conn.Write(data)
			if string(data) == "quit" {
				os.Exit(0)
			}
		}()
	}
}

func netSend(address, size, count string) error {
	n, err := strconv.Atoi(size)
	if err != nil {
		return err
	}
	m, err := strconv.Atoi(count)
	if err != nil {
		return err
	}
	results := make(chan error)
	for i := range m {
		go func() { results <- sendAndCompare(address, bytes.Repeat([]byte{byte('a' + i%26)}, n)) }()
	}
	for range m {
		err = errors.Join(err, <-results)
	}
	if err == nil {
		fmt.Printf("%d times %d bytes came back\n", m, n)
	}
	return err
}

func sendAndCompare(address string, data []byte) error {
	conn, err := net.DialTimeout("tcp", address, time.Minute)
	if err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	go func() {
		_, _ = conn.Write(data)
		_ = conn.(*net.TCPConn).CloseWrite()
	}()
	got, err := io.ReadAll(conn)
	if err == nil && !bytes.Equal(got, data) {
		err = fmt.Errorf("%d bytes came back of %d", len(got), len(data))
	}
	return err
}

func netServe(address, file string) error {
	l, err := listenAndTell(address, file)
	if err != nil {
		return err
	}
	quit := make(chan struct{})
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "you asked for %s\n", r.URL.Path)
		if r.URL.Path == "/quit" {
			close(quit)
		}
	})}
	go func() { _ = server.Serve(l) }()
	<-quit
	return server.Shutdown(context.Background()) // waits until the response was sent
}

func netGet(address string) error {
	transport := &http.Transport{DisableKeepAlives: true}
	if proxy := os.Getenv("http_proxy"); proxy != "" { // http.ProxyFromEnvironment never uses the proxy for localhost
		at, err := url.Parse(proxy)
		if err != nil {
			return err
		}
		transport.Proxy = http.ProxyURL(at)
	}
	resp, err := (&http.Client{Transport: transport, Timeout: time.Minute}).Get(address)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(os.Stdout, resp.Body); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	return nil
}
