package proc

// Async starts f in a goroutine and returns a function that waits for its result. It is for functions that mostly wait,
// such as for another process, or that take long enough to be worth another CPU.
func Async[T any](f func() (T, error)) func() (T, error) {
	var (
		value T
		err   error
		done  = make(chan struct{})
	)
	go func() { defer close(done); value, err = f() }()
	return func() (T, error) { <-done; return value, err }
}
