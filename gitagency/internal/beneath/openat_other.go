//go:build !linux

package beneath

func openBeneath(top int, name string, flags int) (int, error) {
	return openByComponents(top, name, flags)
}
