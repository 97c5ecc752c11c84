package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"time"
)

// netMain is the command "net" of the scripts, an HTTP server and client.
//
//	net serve <address> <file>   listens, then writes its port to the file; a request for "/quit" stops it
//	net get <url>                prints the response; uses the proxy in http_proxy, if that is set
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
	}
	return errors.New("usage: net serve <address> <file> | net get <url>")
}

func netServe(address, file string) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		return err
	}
	if err := os.WriteFile(file+".new", []byte(port+"\n"), 0o644); err != nil {
		return err
	}
	if err := os.Rename(file+".new", file); err != nil { // the file appears with the port in it
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
