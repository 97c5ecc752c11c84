package guard

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// mount is one line of the kernel's list: the directory root of a file system is seen at point, which
// lies in the mount parent.
type mount struct{ id, parent, device, root, point string }

// readMounts lists what is mounted where. Where there is no such list there are no bind mounts either,
// or none that can be seen.
func readMounts() []mount {
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil
	}
	return parseMounts(string(data))
}

// MountedBelow lists what is mounted inside a directory. Removing the directory would remove what is
// behind it.
func MountedBelow(dir string) []string {
	var points []string
	for _, m := range readMounts() {
		if Contains(dir, m.point) {
			points = append(points, m.point)
		}
	}
	return points
}

// parseMounts reads mountinfo: "id parent device root point options…", with octal escapes for the
// characters that separate.
func parseMounts(text string) []mount {
	var mounts []mount
	for line := range strings.SplitSeq(text, "\n") {
		if f := strings.Split(line, " "); len(f) > 4 {
			mounts = append(mounts, mount{f[0], f[1], f[2], unescape(f[3]), unescape(f[4])})
		}
	}
	return mounts
}

// byDevice compares two paths by where they are on the file systems that hold them.
func byDevice(mounts []mount, path, other string) Relation {
	d1, inner1 := onDevice(mounts, path)
	d2, inner2 := onDevice(mounts, other)
	if d1 == "" || d1 != d2 {
		return Apart
	}
	return byName(inner1, inner2)
}

// onDevice says which file system holds a resolved path, and where in it. It goes from mount to mount
// as a lookup does: the first point on the way is where it goes on, so that what an outer mount hides
// does not count.
func onDevice(mounts []mount, path string) (device, inner string) {
	at, ok := outermost(mounts)
	if !ok {
		return "", ""
	}
	for {
		next, found := mount{}, false
		for _, m := range mounts {
			onTheWay := m.parent == at.id && m.id != at.id && (path == m.point || Contains(m.point, path))
			if onTheWay && (!found || len(m.point) < len(next.point)) {
				next, found = m, true
			}
		}
		if !found {
			return at.device, filepath.Join(at.root, strings.TrimPrefix(path, at.point))
		}
		at = next
	}
}

// outermost is the mount that holds the root directory and lies in no other that we can see.
func outermost(mounts []mount) (mount, bool) {
	ids := map[string]bool{}
	for _, m := range mounts {
		ids[m.id] = true
	}
	for _, m := range mounts {
		if m.point == "/" && (!ids[m.parent] || m.parent == m.id) {
			return m, true
		}
	}
	return mount{}, false
}

func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if c, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(c))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
