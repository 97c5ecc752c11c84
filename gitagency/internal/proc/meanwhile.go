package proc

// Meanwhile starts f and returns a function that waits for its result. It is for what mostly waits, as for
// another process, or takes long enough to be worth a processor of its own.
func Meanwhile[T any](f func() (T, error)) func() (T, error) {
	var (
		value T
		err   error
		done  = make(chan struct{})
	)
	go func() { defer close(done); value, err = f() }()
	return func() (T, error) { <-done; return value, err }
}
