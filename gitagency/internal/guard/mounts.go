package guard

import (
	"os"
	"path/filepath"
	"slices"
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

// MountTable is a list of all mounts, read once.
type MountTable struct {
	mounts   []mount
	repeated map[string]bool // file systems that are mounted more than once
}

// ReadMountTable reads the list of mounts.
func ReadMountTable() MountTable { return newMountTable(readMounts()) }

func newMountTable(mounts []mount) MountTable {
	t := MountTable{mounts, map[string]bool{}}
	seen := map[string]bool{}
	for _, m := range mounts {
		if seen[m.device] {
			t.repeated[m.device] = true
		}
		seen[m.device] = true
	}
	return t
}

// Below lists the mount points inside a directory.
func (t MountTable) Below(dir string) []string {
	var points []string
	for _, m := range t.mounts {
		if Contains(dir, m.point) {
			points = append(points, m.point)
		}
	}
	return points
}

// OtherNames lists the other paths at which the files of a resolved path are visible: bind mounts, and other mounts of
// the same file system, as with a subvolume that is mounted by itself and with its parent. A path may be that of a part
// of the directory.
func (t MountTable) OtherNames(path string) []string {
	if len(t.repeated) == 0 {
		return nil
	}
	names := t.otherNames(path)
	for _, point := range t.Below(path) {
		names = append(names, t.otherNames(point)...)
	}
	names = slices.DeleteFunc(names, func(name string) bool { return IsOrContains(path, name) })
	slices.Sort(names)
	return slices.Compact(names)
}

func (t MountTable) otherNames(path string) (names []string) {
	device, inner := locateOnDevice(t.mounts, path)
	if !t.repeated[device] {
		return nil
	}
	for _, m := range t.mounts {
		name, there := m.point, m.root
		switch {
		case m.device != device:
			continue
		case IsOrContains(inner, m.root):
		case Contains(m.root, inner):
			name, there = filepath.Join(m.point, strings.TrimPrefix(inner, m.root)), inner
		default:
			continue
		}
		if d, visible := locateOnDevice(t.mounts, name); d == device && visible == there && name != path { // else another mount covers it
			names = append(names, name)
		}
	}
	return names
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
			onTheWay := m.parent == at.id && m.id != at.id && IsOrContains(m.point, path)
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
