//go:build !linux

package main

import "github.com/rogpeppe/go-internal/testscript"

// makeEngines does nothing: simulated engines need Linux.
func makeEngines(*testscript.Env) error { return nil }
