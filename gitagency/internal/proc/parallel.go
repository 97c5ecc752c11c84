package proc

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// Parallel calls do for every item, on as many goroutines as there are processors.
func Parallel[T any](items []T, do func(T)) {
	var next atomic.Int64
	var group sync.WaitGroup
	for range min(len(items), runtime.GOMAXPROCS(0)) {
		group.Go(func() {
			for {
				n := int(next.Add(1)) - 1
				if n >= len(items) {
					return
				}
				do(items[n])
			}
		})
	}
	group.Wait()
}
