package confine

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/git-agency/git-agency/gitagency/internal/walls"
)

// setHostname sets the host name of the UTS namespace.
func setHostname(host string) error {
	if host == "" {
		return nil
	}
	if err := unix.Sethostname([]byte(host)); err != nil {
		return fmt.Errorf("hostname %s: %w", host, err)
	}
	return nil
}

// bringUpLoopback brings up the loopback device of a network namespace. The host's must not be touched.
func bringUpLoopback(n walls.Network) error {
	if n == walls.HostNetwork {
		return nil
	}
	if n != walls.NoNetwork && n != walls.ProxiedOnly {
		return fmt.Errorf("unknown network %q", n)
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		defer unix.Close(fd)
		var lo *unix.Ifreq
		if lo, err = unix.NewIfreq("lo"); err == nil {
			lo.SetUint16(unix.IFF_UP)
			err = unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo)
		}
	}
	if err != nil {
		return fmt.Errorf("network %s: loopback: %w", n, err)
	}
	return nil
}
