package outlet

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// RelayProcessName is the argv[0] of the process that serves the loopback relays of a sandbox.
const RelayProcessName = "git-agency-relay"

// Descriptors of a relay process.
const (
	relayEndFD      = 3 // readable when the sandbox's namespaces have ended
	relayReportFD   = 4 // pipe for the targets that failed
	relayListenerFD = 5 // first of the listeners
)

// RelayProcess returns the command line of the process that serves relays; its main function is RunRelayProcess. It needs
// these descriptors from 3 on: one that is readable when the sandbox has ended, the write end of a pipe, and the
// listeners of the relays in their order. It writes a line to the pipe for each relay that fails for the first time.
//
// One process serves all commands of a sandbox: a connection may last longer than the command that ran first.
func RelayProcess(relays []LoopbackRelay) (argv []string) {
	argv = []string{RelayProcessName}
	for _, r := range relays {
		argv = append(argv, r.String())
	}
	return argv
}

// RunRelayProcess serves one listener for each word, a list of targets, until the sandbox has ended.
func RunRelayProcess(words []string) {
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for i, word := range words {
		relay, err := parseRelayTargets(word)
		f := os.NewFile(uintptr(relayListenerFD+i), "listener")
		l, listenErr := net.FileListener(f)
		_ = f.Close()
		if err != nil || listenErr != nil {
			reportRelayFailure(word, errors.Join(err, listenErr))
			continue
		}
		var once sync.Once
		failed := func(err error) { once.Do(func() { reportRelayFailure(word, err) }) }
		all.Go(func() {
			if err := relay.Serve(ctx, l, failed); err != nil {
				reportRelayFailure(word, err)
			}
		})
	}
	for {
		_, err := unix.Poll([]unix.PollFd{{Fd: relayEndFD, Events: unix.POLLIN}}, -1)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	cancel()
	all.Wait()
}

func parseRelayTargets(word string) (r LoopbackRelay, err error) {
	for text := range strings.SplitSeq(word, ",") {
		target, err := netip.ParseAddrPort(text)
		if err != nil {
			return r, err
		}
		r.Targets = append(r.Targets, target)
	}
	return r, nil
}

// reportRelayFailure writes one line to the pipe. It never waits: the reader may be gone or stopped.
func reportRelayFailure(targets string, err error) {
	_ = unix.SetNonblock(relayReportFD, true)
	text := err.Error()
	var op *net.OpError
	if errors.As(err, &op) {
		text = op.Err.Error()
	}
	_, _ = unix.Write(relayReportFD, []byte(targets+" "+strings.ReplaceAll(text, "\n", "; ")+"\n"))
}
