//go:build !linux

package main

import "context"

// withParent cannot tell on this system when the git that started us is gone.
func withParent(ctx context.Context) (context.Context, func()) { return context.WithCancel(ctx) }
