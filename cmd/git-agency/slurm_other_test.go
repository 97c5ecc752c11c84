//go:build !linux

package main

import "github.com/rogpeppe/go-internal/testscript"

// makeSlurm does nothing: the simulated Slurm needs Linux.
func makeSlurm(*testscript.Env) error { return nil }
