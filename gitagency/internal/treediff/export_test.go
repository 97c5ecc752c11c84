package treediff

import "bytes"

// CompareText compares two contents of a file, including changed words. The result has no path, modes or object ids,
// because there are no git objects.
func CompareText(before, after []byte) File {
	f := File{}
	if bytes.Equal(before, after) {
		return f
	}
	if IsBinary(before) || IsBinary(after) {
		f.Binary, f.OldSize, f.NewSize = true, int64(len(before)), int64(len(after))
		return f
	}
	f.Hunks = CompareLines(before, after)
	f.countLines()
	f.MarkWords()
	return f
}
