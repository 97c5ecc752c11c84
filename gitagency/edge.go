package gitagency

// publicError returns an error of the packages below as callers of this package see it. Every exported function and
// method that can fail passes its error through it.
func publicError(err error) error { return err }

// edge passes the error of a call to a package below through publicError.
func edge[T any](value T, err error) (T, error) { return value, publicError(err) }
