package guard

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// mount is one line of /proc/self/mountinfo: the directory root of a file system is visible at point, which lies in
// the mount parent.
type mount struct{ id, parent, device, root, point string }

// readMounts lists the mounts. Without /proc/self/mountinfo it returns none: then there are no bind mounts, or none
// that can be detected.
func readMounts() []mount {
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil
	}
	return parseMounts(string(data))
}

// MountsBelow lists the mount points inside a directory. Removing the directory recursively would delete the files
// that are mounted there.
func MountsBelow(dir string) []string {
	var points []string
	for _, m := range readMounts() {
		if Contains(dir, m.point) {
			points = append(points, m.point)
		}
	}
	return points
}

// parseMounts parses mountinfo: "id parent device root point options…", in which separators are escaped in octal.
func parseMounts(text string) []mount {
	var mounts []mount
	for line := range strings.SplitSeq(text, "\n") {
		if f := strings.Split(line, " "); len(f) > 4 {
			mounts = append(mounts, mount{f[0], f[1], f[2], unescape(f[3]), unescape(f[4])})
		}
	}
	return mounts
}

// relationByDevice compares two paths by their positions on the file systems that hold them.
func relationByDevice(mounts []mount, path, other string) Relation {
	d1, inner1 := locateOnDevice(mounts, path)
	d2, inner2 := locateOnDevice(mounts, other)
	if d1 == "" || d1 != d2 {
		return Disjoint
	}
	return relationByName(inner1, inner2)
}

// locateOnDevice returns the file system that holds a resolved path, and the path inside of it. It descends from
// mount to mount as a path lookup does, always to the nearest mount point on the path, so that mounts hidden by an
// outer mount do not count.
func locateOnDevice(mounts []mount, path string) (device, inner string) {
	at, ok := rootMount(mounts)
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

// rootMount returns the mount at "/" that lies in no other visible mount.
func rootMount(mounts []mount) (mount, bool) {
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
