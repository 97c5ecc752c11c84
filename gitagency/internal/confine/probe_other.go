//go:build !linux

package confine

import (
	"context"
	"runtime"
)

// Probe reports every feature. They are Linux's; no other system has them under these names.
func Probe(ctx context.Context, _ []string) ([]Feature, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	var features []Feature
	for _, name := range Features() {
		features = append(features, Feature{Name: name, State: Missing, Detail: "not on this system: " + runtime.GOOS + " has none"})
	}
	return features, nil
}
