package confine

import "golang.org/x/sys/unix"

// machine is what this one is: the numbers of all calls that are banned and that it has.
func machine() (architecture, error) {
	return architecture{audit: unix.AUDIT_ARCH_AARCH64, calls: commonCalls()}, nil
}
