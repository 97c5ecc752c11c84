package proc

import "errors"

// ErrBackground reports that another process group is in the foreground of the terminal, usually because a shell started
// us with "&". We must not read its keyboard: the kernel would stop us.
var ErrBackground = errors.New("not in the foreground of the terminal")
