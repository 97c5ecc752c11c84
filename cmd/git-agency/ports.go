package main

import (
	"fmt"
	"sync"
	"syscall"

	"github.com/urfave/cli/v2"

	"github.com/git-agency/git-agency/cmd/git-agency/internal/interrupt"
	"github.com/git-agency/git-agency/cmd/git-agency/internal/program"
	"github.com/git-agency/git-agency/gitagency"
)

func (t *tool) portsCommand() *cli.Command {
	return &cli.Command{
		Name:      "ports",
		Usage:     "make ports of a sandbox reachable from this machine",
		UsageText: "git agency ports <id> <port>[:<host port>]...",
		Description: `Forwards connections to 127.0.0.1:<host port> of this machine to <port> in the sandbox, until interrupted
or until the last command in the sandbox ends. The default <host port> is the same number; 0 is any free
port. Prints the address of each, one per line, as soon as all are reachable. Every user of this machine
can connect.

Only sandboxes with --outputs none or hosts: have ports of their own.

Exit status: 0 the last command in the sandbox has ended; 1 failed: no command runs there, its network
is that of this machine, or a port is in use; 3 no such invocation; 4 broken; 129 usage; 130 or 143
interrupted, all ports closed.`,
		Action: func(c *cli.Context) error {
			args, err := program.PositionalArgs(c, 2, -1)
			if err != nil {
				return err
			}
			req := gitagency.ForwardRequest{Listening: t.printListening, Failed: t.warnUnreachedOnce()}
			for _, arg := range args[1:] {
				port, err := gitagency.ParsePort(arg)
				if err != nil {
					return program.NewUsageError(c, err)
				}
				req.Ports = append(req.Ports, port)
			}
			sandbox, err := t.OpenSandbox(c, args[0])
			if err != nil {
				return err
			}
			ctx, stop := interrupt.OnParentExit(c.Context, program.InterruptedError{Signal: syscall.SIGTERM})
			defer stop()
			if err := sandbox.Forward(ctx, req); err != nil {
				return err
			}
			fmt.Fprintf(t.Stderr, "the last command in sandbox %s has ended\n", sandbox.ID)
			return nil
		},
	}
}

// printListening prints the addresses and flushes, since the caller waits for them.
func (t *tool) printListening(addresses []string) error {
	for _, address := range addresses {
		if err := t.PrintLine(address); err != nil {
			return err
		}
	}
	return t.Stdout.Flush()
}

// warnUnreachedOnce returns a function that warns of a connection that failed inside the sandbox, once per port: some
// clients retry for ever.
func (t *tool) warnUnreachedOnce() func(gitagency.Port, error) {
	var mu sync.Mutex
	said := map[gitagency.Port]bool{}
	return func(port gitagency.Port, err error) {
		mu.Lock()
		defer mu.Unlock()
		if !said[port] {
			said[port] = true
			t.Warn(err.Error() + "; further failures on this port are not reported")
		}
	}
}
