//go:build !linux

package fakeslurm

import "errors"

func becomeSubreaper() error { return errors.New("the simulated Slurm needs Linux") }
