package proc

import "errors"

// ErrBackground is a terminal that somebody else has in the foreground, usually the shell that started us
// with a "&". Its keyboard is not ours to read, and asking for it would stop us.
var ErrBackground = errors.New("not in the foreground of the terminal")
