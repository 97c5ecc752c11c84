//go:build !linux

package confine

import (
	"context"
	"runtime"
)

// Probe reports every feature as missing: they are features of Linux.
func Probe(ctx context.Context, _ []string) ([]Feature, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	var features []Feature
	for _, name := range FeatureNames() {
		features = append(features, Feature{Name: name, State: Missing, Detail: "not on this system: " + runtime.GOOS + " has none"})
	}
	return features, nil
}
