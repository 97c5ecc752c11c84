//go:build !linux

package interrupt

import "context"

// OnParentExit does not watch the parent: this system has no pidfd.
func OnParentExit(ctx context.Context, _ error) (context.Context, func()) {
	return context.WithCancel(ctx)
}
