package git

import "strings"

// Head is the content of a HEAD file: the full ref of a branch, or the commit of a detached HEAD.
type Head struct {
	Branch string // full ref; empty when detached
	Commit string // empty unless detached
}

// ReadHead reads HEAD in a git directory without git.
func ReadHead(gitDir string) (Head, error) {
	data, err := ReadSmallFile(gitDir, "HEAD")
	if err != nil {
		return Head{}, err
	}
	return ParseHead(data), nil
}

// ParseHead parses the content of a HEAD file. Both fields are empty if it is empty.
func ParseHead(data []byte) Head {
	head := strings.TrimSpace(string(data))
	if ref, ok := strings.CutPrefix(head, "ref:"); ok {
		return Head{Branch: strings.TrimSpace(ref)}
	}
	return Head{Commit: head}
}
