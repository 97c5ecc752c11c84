package outlet

import (
	"context"
	"fmt"
	"net"
)

// Forward carries every connection that l accepts to one of dial's, until ctx ends or l is closed; then it closes l and
// all connections, and returns when nothing of it runs any more. Of each connection that could not be carried,
// failed is told, at any time and from many goroutines; it may be nil.
//
// Who can connect to l reaches the sandbox: on loopback that is every user and every program of the machine.
func Forward(ctx context.Context, l net.Listener, dial func(context.Context) (net.Conn, error), failed func(error)) error {
	return serve(ctx, l, defaults.Connections, func(ctx context.Context, from net.Conn) {
		dialling, cancel := context.WithTimeout(ctx, defaults.Dial)
		to, err := dial(dialling)
		cancel()
		if err != nil {
			reset(from)
			if failed != nil && ctx.Err() == nil {
				failed(fmt.Errorf("forward from %s: %w", from.RemoteAddr(), err))
			}
			return
		}
		relay(ctx, side{from, from}, side{to, to}, 0)
	})
}
