//go:build !linux

package main

import "context"

// cancelOnParentExit does not watch the parent: this system has no pidfd.
func cancelOnParentExit(ctx context.Context) (context.Context, func()) {
	return context.WithCancel(ctx)
}
