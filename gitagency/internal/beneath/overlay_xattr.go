package beneath

import "golang.org/x/sys/unix"

// OverlayXattrPrefixes are the prefixes of overlayfs' attributes, with and without the mount option userxattr.
var OverlayXattrPrefixes = []string{"user.overlay.", "trusted.overlay."}

// OverlayXattr returns the value of an attribute of overlayfs on an open file, such as "opaque", with either prefix; "set" for one
// without a value, and empty when it is not set. A program cannot forge one through the mount: overlayfs escapes the names.
func OverlayXattr(fd int, name string) string {
	for _, prefix := range OverlayXattrPrefixes {
		value := make([]byte, 16)
		n, err := unix.Fgetxattr(fd, prefix+name, value)
		switch {
		case err == nil && n == 0:
			return "set"
		case err == nil:
			return string(value[:n])
		}
	}
	return ""
}

// IsWhiteout reports whether a file in a layer of an overlay is a whiteout, which hides its name in the layers below.
func IsWhiteout(st *unix.Stat_t) bool { return st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev == 0 }
