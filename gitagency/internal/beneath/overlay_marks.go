package beneath

import "golang.org/x/sys/unix"

// OverlayXattrPrefixes are the prefixes of overlayfs' attributes, with and without the mount option userxattr.
var OverlayXattrPrefixes = []string{"user.overlay.", "trusted.overlay."}

// OverlayMark returns the value of an overlayfs mark on an open file, such as "opaque", with either prefix; empty when it
// is not set. A program cannot forge marks through the mount: overlayfs escapes the names of such attributes.
func OverlayMark(fd int, mark string) string {
	for _, prefix := range OverlayXattrPrefixes {
		value := make([]byte, 16)
		n, err := unix.Fgetxattr(fd, prefix+mark, value)
		switch {
		case err == nil && n == 0:
			return "set" // a mark without a value counts too
		case err == nil:
			return string(value[:n])
		}
	}
	return ""
}

// IsWhiteout reports whether a file in a layer of an overlay is a whiteout, which hides its name in the layers below.
func IsWhiteout(st *unix.Stat_t) bool { return st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev == 0 }
