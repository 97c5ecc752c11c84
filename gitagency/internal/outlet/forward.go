package outlet

import (
	"context"
	"fmt"
	"net"
)

// Forward connects every connection that l accepts with one from dial, until ctx ends or l is closed. Then it closes l
// and all connections, and returns when all its goroutines have ended. It calls failed for each connection that could
// not be forwarded, possibly concurrently; failed may be nil.
//
// Every process that can connect to l reaches the sandbox: on loopback that is every user and program of the machine.
func Forward(ctx context.Context, l net.Listener, dial func(context.Context) (net.Conn, error), failed func(error)) error {
	return serveConns(ctx, l, defaultLimits.MaxConnections, func(ctx context.Context, from net.Conn) {
		dialling, cancel := context.WithTimeout(ctx, defaultLimits.DialTimeout)
		to, err := dial(dialling)
		cancel()
		if err != nil {
			if failed != nil && ctx.Err() == nil { // first: a client that sees the end may end itself, and so the caller
				failed(fmt.Errorf("forward from %s: %w", from.RemoteAddr(), err))
			}
			abortConn(from)
			return
		}
		relay(ctx, bufferedConn{from, from}, bufferedConn{to, to}, 0)
	})
}
