package guard

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// mount is one line of the kernel's list: the directory root of a file system is seen at point.
type mount struct{ device, root, point string }

// readMounts lists what is mounted where. Where there is no such list there are no bind mounts either,
// or none that can be seen.
func readMounts() []mount {
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil
	}
	return parseMounts(string(data))
}

// parseMounts reads mountinfo: "id parent device root point options…", with octal escapes.
func parseMounts(text string) []mount {
	var mounts []mount
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) > 4 {
			mounts = append(mounts, mount{f[2], unescape(f[3]), unescape(f[4])})
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

// onDevice says which file system holds a resolved path, and where in it. The last of several mounts on
// one point is the one that is seen.
func onDevice(mounts []mount, path string) (device, inner string) {
	longest := -1
	for _, m := range mounts {
		if (path == m.point || Contains(m.point, path)) && len(m.point) >= longest {
			longest = len(m.point)
			device, inner = m.device, filepath.Join(m.root, strings.TrimPrefix(path, m.point))
		}
	}
	return device, inner
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
