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
	relayFailuresFD = 4 // file for the targets that failed
	relayListenerFD = 5 // first of the listeners
)

// RelayProcess returns the command line of the process that serves relays; its main function is RunRelayProcess. It needs
// these descriptors from 3 on: one that is readable when the sandbox has ended, a file of CreateRelayFailures, to which it
// adds, and the listeners of the relays in their order.
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
	log := newFailureLog(os.NewFile(relayFailuresFD, "failures"))
	var all sync.WaitGroup
	for i, word := range words {
		relay, err := parseRelayTargets(word)
		f := os.NewFile(uintptr(relayListenerFD+i), "listener")
		l, listenErr := net.FileListener(f)
		_ = f.Close()
		if err != nil || listenErr != nil {
			log.add(word, errors.Join(err, listenErr))
			continue
		}
		all.Go(func() {
			if err := relay.Serve(ctx, l, func(err error) { log.add(word, err) }); err != nil {
				log.add(word, err)
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

// failureLog adds failures to the file that the commands of the sandbox read.
type failureLog struct {
	file *os.File

	mu       sync.Mutex
	failures RelayFailures
}

func newFailureLog(file *os.File) *failureLog {
	l := &failureLog{file: file}
	l.failures, _ = ReadRelayFailures(file) // its creator has just written it
	if l.failures.Connections == nil {
		l.failures.Connections = map[string]FailedConnections{}
	}
	return l
}

// add counts a failure of the relay with these targets.
func (l *failureLog) add(targets string, err error) {
	text := err.Error()
	var op *net.OpError
	if errors.As(err, &op) {
		text = op.Err.Error()
	}
	first, _, _ := strings.Cut(targets, ",")
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failures.Connections[first] = FailedConnections{Count: l.failures.Connections[first].Count + 1, Error: strings.ReplaceAll(text, "\n", "; ")}
	_ = l.failures.write(l.file) // on a full disk a warning is missing
}
